"""Who may come in, and how much of the server one may take.

A start-up token is taken once, then a cookie; and requests come only from this server's own address and
pages. Every request passes `Gate` first. What it lets through has a user; nothing behind it asks again.

Connections are held by strangers or by users. One is a stranger's until a request over it shows a user's
cookie. Strangers get few for some seconds, users get many, and none gets all. `Limits` has the numbers, of
messages too.

What is refused comes with what happened and what to do, as a page to browsers and as text to others.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import html
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that one user, or one page, may take of the server.

    Attributes:
        running_queries: how many queries of one user run at once. Further ones wait.
        plans: how many queries are planned for one user at once.
        answer_bytes: what one user's answers may take together, in memory.
        run_seconds: how long a query may run.
        grace_seconds: how long a query goes on after its last viewer has left.
        messages_per_second: how many messages one page may send, on average.
        burst_messages: how many messages one page may send at once.
        connections: how many connections one user may have.
        strangers: how many connections may be open that have not shown a cookie yet.
        request_seconds: how long a whole request may take to arrive. It counts from the connection, or from
            the last answer over it.
    """

    running_queries: int = 32
    plans: int = 2
    answer_bytes: int = 256 << 20
    run_seconds: float = 1800.0
    grace_seconds: float = 30.0
    messages_per_second: float = 20.0
    burst_messages: int = 60
    pages_open: int = 16
    connections: int = 64
    strangers: int = 128
    request_seconds: float = 5.0


class TokenBucket:
    """Lets so many through at once, and then so many a second. clock: in seconds."""

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float]) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._clock = clock
        self._tokens = float(burst)
        self._seen = clock()

    def take(self) -> bool:
        """Return whether one more may pass now."""
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._seen) * self._per_second)
        self._seen = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


ADMIT = "relaqs.admit"  # in a scope's state: the function that makes its connection a user's


class Connections:
    """The open connections of one server, all on its event loop."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._strangers: dict[asyncio.Transport, asyncio.TimerHandle] = {}  # the oldest first
        self._idle: dict[asyncio.Transport, asyncio.TimerHandle] = {}  # users', between two requests
        self._of_users: dict[str, set[asyncio.Transport]] = {}

    def enter(self, transport: asyncio.Transport) -> None:
        """Give a stranger some seconds. Where they are too many, one of them goes."""
        self._strangers[transport] = self._later(self._drop, transport)
        if len(self._strangers) > self._limits.strangers:
            self._drop(self._first_to_go())

    def admit(self, transport: asyncio.Transport, user: str) -> bool:
        """Return whether the connection is the user's from now on; one has so many and no more."""
        held = {each for each in self._of_users.get(user, ()) if not each.is_closing()} | {transport}
        if len(held) > self._limits.connections:
            return False
        self._of_users[user] = held
        self.leave(transport)
        return True

    def answered(self, transport: asyncio.Transport) -> None:
        """Give a user some seconds for the next request. What is still being sent is sent."""
        if transport not in self._strangers:
            self.leave(transport)
            self._idle[transport] = self._later(transport.close)

    def leave(self, transport: asyncio.Transport) -> None:
        """Wait no longer for a request."""
        for waiting in (self._strangers, self._idle):
            if (timer := waiting.pop(transport, None)) is not None:
                timer.cancel()

    def _drop(self, transport: asyncio.Transport) -> None:
        self.leave(transport)
        transport.abort()

    def _first_to_go(self) -> asyncio.Transport:
        """Return the oldest stranger of the address that has most of them."""
        crowd, _ = Counter(map(_peer, self._strangers)).most_common(1)[0]
        return next(each for each in self._strangers if _peer(each) == crowd)

    def _later(self, act: Any, *of: Any) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(self._limits.request_seconds, act, *of)


class Connection(H11Protocol):
    """uvicorn's connection over HTTP, which tells `Connections` when it comes, has answered, and goes.

    A WebSocket goes on over the same transport, without this object.
    """

    def __init__(self, connections: Connections, **entries: Any) -> None:
        super().__init__(**entries)
        self._all = connections
        self.app_state = {**self.app_state, ADMIT: self._admit}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._all.enter(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.leave(self.transport)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._all.answered(self.transport)
        super().on_response_complete()

    def _admit(self, user: str) -> bool:
        return self._all.admit(self.transport, user)


def _peer(transport: asyncio.Transport) -> str:
    name = transport.get_extra_info("peername")
    return str(name[0]) if name else ""


_HEADINGS = {
    403: "This browser was not let in",
    404: "There is nothing here",
    405: "This cannot be done here",
    421: "This is not the server's name",
    503: "Too many connections",
}
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{heading} · ReLAQS</title>
<link rel="icon" href="data:,">
<style nonce="{nonce}">
body {{ max-width: 34rem; margin: 15vh auto; padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif }}
h1 {{ font-size: 1.4rem }}
</style>
</head>
<body>
<main>
<h1>{heading}</h1>
<p>{said}</p>
{link}</main>
</body>
</html>
"""
_LINK = '<p><a href="/">Go to the first page</a></p>\n'


def refused(
    said: str, status: int, asked: Headers, nonce: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the answer to a request that is not served.

    Args:
        asked: its headers.
        headers: of the answer.
    """
    if "text/html" not in asked.get("accept", ""):
        return PlainTextResponse(said, status, headers)
    values = {"heading": _HEADINGS[status], "said": said, "nonce": nonce}
    page = {name: html.escape(value) for name, value in values.items()}
    return HTMLResponse(_PAGE.format(**page, link=_LINK if status == 404 else ""), status, headers)


COOKIE_SECONDS = 7 * 24 * 3600
SECRET_BYTES = 32
_POLICY_REFUSED = 1008  # WebSocket: closed for a violation of policy
_COMMON_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cache-Control": "no-store",
}
_CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_RETRY = (
    '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=/"><title>ReLAQS</title>'
)
_WAY_IN = (
    "This page needs the address that `relaqs dashboard` printed when it started, with its token; "
    "open that address once in this browser. The token is new at each start."
)
_OTHER_NAME = (
    "This server does not know the address in your browser. Start it with --address and that address, as in "
    "`relaqs dashboard --address https://charts.example.org`."
)
_NOTES_PER_SECOND, _NOTES_AT_ONCE = 0.1, 200  # of refusals: the log keeps some hundred thousand lines
_TOO_MANY = "You have too many connections open; close some pages."

Note = Callable[..., None]
Refuse = Callable[..., Response]


class Keys:
    """The tokens of the users, and cookies that are signed with a secret which outlives the server.

    Args:
        users: their names. A browser that was let in stays in when the server starts again; tokens are new at
            each start.
        clock: seconds since 1970.
    """

    def __init__(self, users: tuple[str, ...], secret: bytes, clock: Callable[[], float] = time.time) -> None:
        self.tokens = {user: secrets.token_urlsafe(32) for user in users}
        self._secret = secret
        self._clock = clock

    def user_of_token(self, token: str) -> str | None:
        found = None
        for user, expected in self.tokens.items():  # all of them, in the same time for any token
            if hmac.compare_digest(token.encode(), expected.encode()):
                found = user
        return found

    def cookie(self, user: str) -> str:
        """Return a new cookie's value for the user."""
        signed = f"{user}.{int(self._clock()) + COOKIE_SECONDS}.{secrets.token_urlsafe(8)}"
        return f"{signed}.{self._signature(signed)}"

    def user_of_cookie(self, cookie: str) -> str | None:
        """Return whose cookie it is; None for one that is forged, too old, or of a user no longer here."""
        signed, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(signed).encode()):
            return None
        user, expires, _ = signed.split(".")
        return user if user in self.tokens and int(expires) > self._clock() else None

    def _signature(self, text: str) -> str:
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()


def kept_secret(path: Path) -> bytes:
    """Return the secret in the file, made the first time; only this user may read it."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_bytes()
    with os.fdopen(descriptor, "wb") as file:
        file.write(secrets.token_bytes(SECRET_BYTES))
    return path.read_bytes()


class Gate:
    """Middleware: lets in requests to this server's own address, from its own pages, with its cookie.

    Args:
        hosts: what the Host header may be, with port.
        scheme: of the addresses in browsers, http or https. With https the cookie goes over TLS alone.
        cookie_name: has the port in it, since browsers do not tell cookies of one machine's ports apart.
        note: writes to the audit log.
    """

    def __init__(
        self, app: ASGIApp, *, keys: Keys, hosts: frozenset[str], scheme: str, cookie_name: str, note: Note
    ) -> None:
        self._app = app
        self._keys = keys
        self._hosts = hosts
        self._origins = frozenset(f"{scheme}://{host}" for host in hosts)
        self._is_secure = scheme == "https"
        self._cookie_name = cookie_name
        self._note = note
        self._noting = TokenBucket(_NOTES_PER_SECOND, _NOTES_AT_ONCE, time.monotonic)
        self._unnoted = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        nonce = secrets.token_urlsafe(12)
        send = _with_headers(send, nonce)
        headers = Headers(scope=scope)
        refuse = partial(refused, asked=headers, nonce=nonce)
        refusal = self._refusal(scope, headers, refuse)
        user = None if refusal is not None else self._user(headers)
        if refusal is None and (user is None or scope["path"] == "/start"):
            refusal = self._admission(scope, headers, refuse)
        if refusal is None and not scope["state"][ADMIT](user):
            refusal = refuse(_TOO_MANY, 503, headers={"Connection": "close"})
        if refusal is None:
            scope["state"] = {**scope["state"], "user": user, "nonce": nonce}
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            self._note_refusal(user, path=scope["path"], why="websocket")
            await send({"type": "websocket.close", "code": _POLICY_REFUSED, "reason": "refused"})
        else:
            if refusal.status_code >= 400:
                self._note_refusal(user, path=scope["path"], status=refusal.status_code)
            await refusal(scope, receive, send)

    def _note_refusal(self, user: str | None, **circumstances: object) -> None:
        """Write down that somebody was refused, unless that would wash away what others asked."""
        if self._noting.take():
            self._note("refused", user, **circumstances, unnoted_before=self._unnoted)
            self._unnoted = 0
        else:
            self._unnoted += 1

    def _refusal(self, scope: Scope, headers: Headers, refuse: Refuse) -> Response | None:
        """Return the answer to a request that no cookie helps."""
        if headers.get("host", "") not in self._hosts or len(headers.getlist("host")) != 1:
            return refuse(_OTHER_NAME, 421)
        origin = headers.get("origin")
        if scope["type"] == "websocket":
            return None if origin in self._origins else refuse("wrong origin", 403)
        if scope["method"] not in ("GET", "HEAD"):
            return refuse("only GET is answered here", 405, headers={"Allow": "GET, HEAD"})
        if origin is not None and origin not in self._origins:
            return refuse("wrong origin", 403)
        is_navigation = headers.get("sec-fetch-mode") == "navigate"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not is_navigation:
            return refuse("wrong site", 403)
        return None

    def _user(self, headers: Headers) -> str | None:
        jar: SimpleCookie = SimpleCookie()
        try:
            jar.load(headers.get("cookie", ""))
        except CookieError:
            return None
        morsel = jar.get(self._cookie_name)
        return None if morsel is None else self._keys.user_of_cookie(morsel.value)

    def _admission(self, scope: Scope, headers: Headers, refuse: Refuse) -> Response:
        """Return the answer to a request without a cookie: the way in with a token, else none."""
        if scope["path"] == "/start":
            return self._start(QueryParams(scope["query_string"]).get("token", ""), refuse)
        if scope["path"] == "/" and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return HTMLResponse(_RETRY)  # browsers hold a strict cookie back until a page here goes on
        return refuse(_WAY_IN, 403)

    def _start(self, token: str, refuse: Refuse) -> Response:
        """Return the exchange of a token for a cookie."""
        user = self._keys.user_of_token(token)
        if user is None:
            return refuse(_WAY_IN, 403)
        self._note("started", user)
        response = RedirectResponse("/", 303)
        response.set_cookie(
            self._cookie_name,
            self._keys.cookie(user),
            max_age=COOKIE_SECONDS,
            httponly=True,
            secure=self._is_secure,
            samesite="strict",
        )
        return response


def _with_headers(send: Send, nonce: str) -> Send:
    """Return a send that puts the safety headers on every response."""
    added: Mapping[str, str] = {
        **_COMMON_HEADERS,
        "Content-Security-Policy": _CONTENT_POLICY.format(nonce=nonce),
    }

    async def send_with(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in added.items():
                headers.setdefault(name, value)
        await send(message)

    return send_with
