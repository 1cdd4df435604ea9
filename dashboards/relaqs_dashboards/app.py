"""The routes: pages, the bundle, exports and the WebSocket. `access.Gate` stands before all of them."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from relaqs_dashboards.access import Gate, Keys, refused
from relaqs_dashboards.answers import MEDIA_TYPES, exported
from relaqs_dashboards.dashboard import Dashboard
from relaqs_dashboards.runs import Threads
from relaqs_dashboards.settings import PageError
from relaqs_dashboards.viewer import PageViewer

_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
_NO_FILE_NAME = re.compile(r"[^\w .()-]+")
_LONGEST_FILE_NAME = 60
_NO_PAGE, _TOO_MANY_PAGES = 4404, 1013  # WebSocket: why it was closed; 1013 is to try again later
_SHELL = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="csp-nonce" content="{nonce}">
<title>{title} · ReLAQS</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/static/app.css">
</head>
<body>
<div id="app" data-page="{page}" data-view="{view}"></div>
<noscript>This page draws its charts with JavaScript, which is off.</noscript>
<script type="module" src="/static/app.js"></script>
</body>
</html>
"""


def create_app(
    dashboard: Dashboard, keys: Keys, *, hosts: frozenset[str], scheme: str, cookie_name: str
) -> Starlette:
    """Return the application. It starts and closes the dashboard.

    Args:
        hosts: what the Host header may be.
        scheme: of the addresses in browsers.
    """
    routes = _Routes(dashboard, _bundle(), Threads("relaqs-export", 1))

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        dashboard.start()
        yield
        await dashboard.close()

    gate = Middleware(
        Gate, keys=keys, hosts=hosts, scheme=scheme, cookie_name=cookie_name, note=dashboard.audit.note
    )
    return Starlette(
        routes=[
            Route("/", routes.first),
            Route("/page/{name}", routes.page),
            Route("/jobs", routes.jobs),
            Route("/static/{name}", routes.static),
            Route("/export/{page}/{panel}.{kind}", routes.export),
            WebSocketRoute("/ws", routes.socket),
        ],
        middleware=[gate],
        exception_handlers={404: routes.nowhere},
        lifespan=lifespan,
    )


@dataclass(frozen=True, slots=True)
class _Routes:
    dashboard: Dashboard
    bundle: Mapping[str, bytes]
    exporting: Threads

    async def first(self, request: Request) -> Response:
        """Go to the first page, or where there is none to the jobs."""
        pages = self.dashboard.pages.pages(request.state.user)
        return RedirectResponse(f"/page/{pages[0].name}" if pages else "/jobs", 303)

    async def page(self, request: Request) -> Response:
        try:
            page = self.dashboard.pages.page(request.path_params["name"], request.state.user)
        except PageError as error:
            return _nothing(str(error), request)
        return _shell(page.title, page.name, "page", request)

    async def jobs(self, request: Request) -> Response:
        return _shell("All jobs", "", "jobs", request)

    async def static(self, request: Request) -> Response:
        """Serve the bundle, whose files are all in memory: no path reaches the disk."""
        name = request.path_params["name"]
        if name not in self.bundle:
            return _nothing("there is no such file", request)
        media_type = next(type_ for ending, type_ in _TYPES.items() if name.endswith(ending))
        return Response(self.bundle[name], media_type=media_type, headers={"Cache-Control": "no-cache"})

    async def export(self, request: Request) -> Response:
        """Serve the newest answer of a panel as a file."""
        name, id, kind = (request.path_params[part] for part in ("page", "panel", "kind"))
        try:
            board = self.dashboard.board(name, request.state.user)
            panel = board.page.panel(id)
        except PageError as error:
            return _nothing(str(error), request)
        if kind not in MEDIA_TYPES:
            return _nothing(f"answers are exported as {' or '.join(MEDIA_TYPES)}", request)
        run = board.panels[id].run
        if run is None or run.snapshot is None:
            return PlainTextResponse("the panel has no answer yet", 409)
        self.dashboard.audit.note("exported", request.state.user, page=name, panel=id, kind=kind)
        return Response(
            await self.exporting.run(request.state.user, partial(exported, run.snapshot, kind)),
            media_type=MEDIA_TYPES[kind],
            headers={"Content-Disposition": _attachment(f"{name}-{id}", panel.title, kind)},
        )

    async def nowhere(self, request: Request, error: Exception) -> Response:
        return _nothing("this address is of no page", request)

    async def socket(self, socket: WebSocket) -> None:
        """Serve one open page until it closes."""
        user, name = socket.state.user, socket.query_params.get("page", "")
        try:
            board = self.dashboard.board(name, user) if name else None
        except PageError:
            await socket.accept()
            await socket.close(_NO_PAGE, "there is no such page")
            return
        await socket.accept()
        if sum(each.user == user for each in self.dashboard.viewers) >= self.dashboard.limits.pages_open:
            await socket.close(_TOO_MANY_PAGES, "too many pages are open; close one")
            return
        viewer = PageViewer(socket, self.dashboard, board, user)
        self.dashboard.audit.note("opened", user, page=name or "jobs")
        self.dashboard.join(viewer)
        try:
            await viewer.serve(self.dashboard.limits)
        finally:
            self.dashboard.leave(viewer)


def _attachment(plain: str, title: str, kind: str) -> str:
    r"""Return the header that names a file by its panel's title. plain: for browsers that know ASCII alone.

    >>> _attachment("sales-p1", "Umsatz / Ort", "csv")
    'attachment; filename="sales-p1.csv"; filename*=UTF-8\'\'Umsatz%20_%20Ort.csv'
    """
    safe = _NO_FILE_NAME.sub("_", title).strip(" .") or plain
    named = quote(f"{safe[:_LONGEST_FILE_NAME]}.{kind}")
    return f"attachment; filename=\"{plain}.{kind}\"; filename*=UTF-8''{named}"


def _nothing(said: str, request: Request) -> Response:
    return refused(said, 404, request.headers, request.state.nonce)


def _shell(title: str, page: str, view: str, request: Request) -> Response:
    """Return the page's HTML, which has no content of its own: all of it comes over the WebSocket."""
    values = {"title": title, "page": page, "view": view, "nonce": request.state.nonce}
    return HTMLResponse(_SHELL.format(**{name: html.escape(value) for name, value in values.items()}))


def _bundle() -> dict[str, bytes]:
    """Return the browser's files by name. The folder is part of the package."""
    folder = files("relaqs_dashboards") / "static"
    return {
        file.name: file.read_bytes()
        for file in folder.iterdir()
        if file.is_file() and file.name.endswith(tuple(_TYPES))
    }
