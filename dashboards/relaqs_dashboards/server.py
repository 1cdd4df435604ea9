"""The server: a bound port, uvicorn, and the addresses to open. In this thread, or in one of its own."""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import logging
import os
import re
import socket
import threading
from functools import partial
from pathlib import Path
from types import FrameType, TracebackType
from urllib.parse import urlsplit

import uvicorn

from relaqs import RelaqsError
from relaqs_dashboards.access import Connection, Connections, Keys, kept_secret
from relaqs_dashboards.app import create_app
from relaqs_dashboards.dashboard import Dashboard
from relaqs_dashboards.requests import LONGEST_BYTES

LOCAL = "127.0.0.1"
DEFAULT_PORT = 8765
_STOP_SECONDS = 3  # what closing waits for open pages
_EXIT_SECONDS = 10.0  # what a signal may take to end the process
_WHOLE_MACHINE = ("0.0.0.0", "::", "")  # which browsers cannot open
_USUAL_PORTS = {"http": 80, "https": 443}  # which browsers leave out
_HOST_NAME = re.compile(r"[a-z0-9_.-]+")
_BACKLOG = 128  # of connections that wait to be accepted


class DashboardServer:
    """Serves a dashboard. A context manager that runs it in a thread; `run` runs it here.

    Args:
        port: 0 takes any that is free.
        host: to listen on. For one that stands for all of the machine, as 0.0.0.0, browsers may use the
            machine's name and its addresses.
        users: each gets an address of its own.
        address: what browsers use instead, as https://charts.example.org of a proxy before this server.

    Raises:
        RelaqsError: the port cannot be had, or the address is none.
    """

    def __init__(
        self,
        dashboard: Dashboard,
        state: Path,
        *,
        host: str = LOCAL,
        port: int = DEFAULT_PORT,
        users: tuple[str, ...] = ("you",),
        address: str | None = None,
    ) -> None:
        scheme, authority = ("http", None) if address is None else _parts_of(address)
        self._socket = _bound(host, port)
        self.port: int = self._socket.getsockname()[1]
        names = _names_of(host)
        hosts = [f"{name}:{self.port}" for name in names] if authority is None else [authority]
        self.address: str = f"{scheme}://{hosts[0]}"
        self._keys = Keys(users, kept_secret(state / "secret"))
        app = create_app(
            dashboard,
            self._keys,
            hosts=frozenset(hosts),
            scheme=scheme,
            cookie_name=f"relaqs-{self.port}",
        )
        logging.getLogger("uvicorn.error").addFilter(_is_worth_a_line)
        self._server = _Server(_config(app, Connections(dashboard.limits)))
        self._thread: threading.Thread | None = None

    @property
    def start_addresses(self) -> dict[str, str]:
        """The address with which each user comes in, by user."""
        return {user: f"{self.address}/start?token={token}" for user, token in self._keys.tokens.items()}

    def run(self, *, ends_process: bool = False) -> None:
        """Serve until a signal comes, on this thread. ends_process: whatever holds it up then, it ends."""
        self._server.ends_process = ends_process
        self._server.run(sockets=[self._socket])

    def __enter__(self) -> DashboardServer:
        self._thread = threading.Thread(target=self.run, name="relaqs-dashboard", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join()
        self._socket.close()


class _Server(uvicorn.Server):
    """uvicorn's, where a signal can end the process in any case, be it that a statement does not let go."""

    ends_process = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.ends_process:
            last = threading.Timer(_EXIT_SECONDS, os._exit, [128 + sig])
            last.daemon = True
            last.start()
        super().handle_exit(sig, frame)


def _bound(host: str, port: int) -> socket.socket:
    """Return a listening socket: who connects before the server has started waits, and is not refused."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen()
    except OSError as error:
        listening.close()
        raise RelaqsError(f"{host}:{port} cannot be served ({error.strerror}); give another --port") from None
    return listening


def _is_worth_a_line(record: logging.LogRecord) -> bool:
    """Whether a line of uvicorn's is: for a frame that is not UTF-8 (1007), it has a traceback."""
    return not (record.exc_info and isinstance(record.exc_info[1], UnicodeDecodeError))


def _config(app: object, connections: Connections) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        http=partial(Connection, connections),  # type: ignore[arg-type]
        log_config=None,
        log_level="error",  # a stranger's rubbish is worth no line
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        ws_max_size=LONGEST_BYTES,
        ws_max_queue=16,
        ws_per_message_deflate=False,  # on one machine it costs more than it saves
        h11_max_incomplete_event_size=32 << 10,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=_STOP_SECONDS,
    )


def default_state(data: str | Path | list[str | Path]) -> Path:
    """Return where the state of a dashboard over that data is kept: the data itself may be read-only."""
    base = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    places = [Path(each).resolve() for each in (data if isinstance(data, list) else [data])]
    full = "\n".join(map(str, places))
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", places[0].name)[:40] or "data"
    return base / "relaqs" / "dashboards" / f"{name}-{hashlib.sha256(full.encode()).hexdigest()[:8]}"


def _parts_of(address: str) -> tuple[str, str]:
    """Return the scheme of an address, and its host as browsers send it, with a port that is not usual.

    >>> _parts_of("https://Charts.example.org:443/")
    ('https', 'charts.example.org')
    """
    try:
        parts = urlsplit(address)
        host, port = _host_in_browsers(parts.hostname or ""), parts.port
    except ValueError:
        host = ""
    if (
        not host
        or parts.scheme not in _USUAL_PORTS
        or "@" in parts.netloc
        or parts.path not in ("", "/")
        or parts.query
        or parts.fragment
    ):
        raise RelaqsError(
            f"the address is {address!r}; it must be http:// or https:// and a host, with a port if need be, "
            "as https://charts.example.org, with signs beyond ASCII as browsers send them: xn--…"
        )
    return parts.scheme, host if port in (None, _USUAL_PORTS[parts.scheme]) else f"{host}:{port}"


def _host_in_browsers(host: str) -> str:
    """Return a host in the form of a Host header. Raises ValueError for one that has no such form."""
    if ":" in host:
        return f"[{ipaddress.IPv6Address(host).compressed}]"
    name = host.encode("idna").decode().lower()
    is_kept = host.isascii() or name.encode().decode("idna") == host.lower()  # "ß" would become "ss"
    if not is_kept or not _HOST_NAME.fullmatch(name):
        raise ValueError(host)
    return name


def _names_of(host: str) -> list[str]:
    """Return what browsers may call a host that is listened on, the best name first."""
    local = [LOCAL, "localhost"]
    if host in local:
        return [host, *(name for name in local if name != host)]
    if host not in _WHOLE_MACHINE:
        return [host]
    name = socket.gethostname()
    try:
        addresses = socket.gethostbyname_ex(name)[2]
    except OSError:
        addresses = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outward, contextlib.suppress(OSError):
        outward.connect(
            ("192.0.2.1", 9)
        )  # sends nothing: the system says which of its addresses it would use
        addresses.insert(0, outward.getsockname()[0])
    return list(dict.fromkeys([*addresses, name.lower(), *local]))
