"""A dashboard that really serves, on a port of its own, and a client that speaks to it as a browser does."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from relaqs_dashboards.access import Limits
from relaqs_dashboards.dashboard import Dashboard
from relaqs_dashboards.server import DashboardServer
from websockets.sync.client import ClientConnection, connect

import relaqs
from relaqs.queries.snapshot import ConfidenceFor

PATIENCE_SECONDS = 30.0


@dataclass
class Page:
    """An open page: merges the updates it is sent into what it knows, as the browser's does."""

    socket: ClientConnection
    page: dict[str, Any] = field(default_factory=dict)
    panels: dict[str, dict[str, Any]] = field(default_factory=dict)
    states: dict[str, list[str]] = field(default_factory=dict)
    cluster: dict[str, Any] | None = None
    log: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    viewers: int = 0
    seq: int = 0

    def receive(self) -> dict[str, Any]:
        """Take one update, without acknowledging it."""
        update: dict[str, Any] = json.loads(self.socket.recv(timeout=PATIENCE_SECONDS))
        assert update["type"] == "update"
        assert update["seq"] == self.seq + 1, "no update may be lost"
        self.seq = update["seq"]
        self.page = update.get("page", self.page)
        self.cluster = update.get("cluster", self.cluster)
        self.viewers = update.get("viewers", self.viewers)
        self.log += [line["text"] for line in update.get("log", [])]
        if update["notice"] is not None:
            self.notices.append(update["notice"])
        for id, panel in update.get("panels", {}).items():
            self.panels.setdefault(id, {}).update(panel)
            seen = self.states.setdefault(id, [])
            if not seen or seen[-1] != panel["state"]:
                seen.append(panel["state"])
        return update

    def next(self) -> dict[str, Any]:
        update = self.receive()
        self.say("ack", seq=self.seq)
        return update

    def say(self, type: str, **entries: Any) -> None:
        self.socket.send(json.dumps({"type": type, **entries}))

    def until(self, is_so: Callable[[Page], object]) -> Page:
        """Take updates until something is so."""
        while not is_so(self):
            self.next()
        return self

    def until_panel(self, id: str, **wanted: Any) -> dict[str, Any]:
        """Take updates until the panel has these values; return it as it is then."""

        def has_come(page: Page) -> bool:
            panel = page.panels.get(id, {})
            return all(name in panel and panel[name] == value for name, value in wanted.items())

        self.until(has_come)
        return dict(self.panels[id])


@dataclass(frozen=True)
class Reply:
    """What a server answered over HTTP. headers: by name in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


@dataclass
class Served:
    """A server that runs, and what is inside of it."""

    server: DashboardServer
    dashboard: Dashboard
    state: Path

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def get(self, path: str, **headers: str) -> Reply:
        return self.request("GET", path, **headers)

    def request(self, method: str, path: str, **headers: str) -> Reply:
        """Return the reply to a request whose path is sent as it is. headers: with _ for -."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)) as connection:
            connection.putrequest(method, path, skip_host="Host" in headers)
            for name, value in headers.items():
                connection.putheader(name.replace("_", "-"), value)
            connection.endheaders()
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, names, response.read())

    def cookie(self, user: str = "you") -> str:
        """Return the cookie that a user's token is exchanged for."""
        reply = self.get(self.server.start_addresses[user].removeprefix(self.server.address))
        assert reply.status == 303
        return reply.headers["set-cookie"].split(";")[0]

    @contextmanager
    def page(self, name: str = "test", user: str = "you", **entries: Any) -> Iterator[Page]:
        """Open a page and take its first update. entries: of the connection, e.g. other headers."""
        headers = {"Cookie": self.cookie(user)}
        chosen = {"origin": f"http://{self.host}", "additional_headers": headers, "max_size": None} | entries
        with connect(f"ws://{self.host}/ws?page={name}", **chosen) as socket:
            page = Page(socket)
            page.next()
            yield page


Serve = Callable[..., Served]


@contextmanager
def serving(
    folder: Path,
    data: Path,
    text: str = "",
    *,
    users: tuple[str, ...] = ("you",),
    result_limit: str = "8MB",
    confidence_for: ConfidenceFor = "cell",
    readers: tuple[str, ...] = (),
    address: str | None = None,
    host: str = "127.0.0.1",
    budget: float | str = 0,
    **limits: Any,
) -> Iterator[Served]:
    """Serve a session over the data. folder: for the state. text: the page called test."""
    given: tuple[Path, ...] = ()
    folder.mkdir(exist_ok=True)
    if text:
        given = (folder / "test.toml",)
        given[0].write_text(text, encoding="utf-8")
    state = folder / "state"
    with relaqs.connect(data, threads=2, memory_limit="1GB", result_limit=result_limit) as session:
        dashboard = Dashboard(
            session,
            state,
            data="TPC-H, scale 0.01",
            given=given,
            limits=Limits(**limits),
            confidence_for=confidence_for,
            readers=readers,
            budget=budget,
        )
        with DashboardServer(
            dashboard, state, host=host, port=0, users=(*users, *readers), address=address
        ) as server:
            yield Served(server, dashboard, state)


@pytest.fixture
def serve(tmp_path: Path, tpch_warehouse: Path) -> Iterator[Serve]:
    """Start servers over TPC-H, all with the same state; text is the page called test."""
    with ExitStack() as stack:

        def begin(text: str = "", *, data: Path = tpch_warehouse, **options: Any) -> Served:
            return stack.enter_context(serving(tmp_path, data, text, **options))

        yield begin


def panel(sql: str, *, id: str = "p1", title: str = "A panel", chart: str = "table", **entries: Any) -> str:
    """Return the TOML of one panel."""
    entries |= {"id": id, "title": title, "chart": chart, "sql": sql}
    return "\n".join(
        ["[[panels]]", *(f"{name} = {json.dumps(value)}" for name, value in entries.items()), ""]
    )
