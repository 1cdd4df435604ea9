"""Who may come in: a start-up token once, then a cookie; only from this server's own address and pages.

Every request passes `Gate` first. What it lets through has a user; nothing behind it asks again.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Callable, Mapping
from functools import partial
from http.cookies import CookieError, SimpleCookie
from pathlib import Path

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from relaqs_dashboards.connections import ADMIT
from relaqs_dashboards.limits import TokenBucket
from relaqs_dashboards.refusals import refused

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
        cookie_name: has the port in it, since browsers do not tell cookies of one machine's ports apart.
        note: writes to the audit log.
    """

    def __init__(
        self, app: ASGIApp, *, keys: Keys, hosts: frozenset[str], cookie_name: str, note: Note
    ) -> None:
        self._app = app
        self._keys = keys
        self._hosts = hosts
        self._origins = frozenset(f"http://{host}" for host in hosts)
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
            return refuse("this is not the name of this server", 421)
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
