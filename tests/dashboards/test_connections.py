"""Sockets that ask nothing, slowly or in rubbish: they go, and whoever has a cookie is served meanwhile."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from relaqs import RelaqsError
from tests.dashboards.conftest import PATIENCE_SECONDS, Serve, Served, panel

MODES = "SELECT l_shipmode, count(*) AS lines FROM lineitem GROUP BY l_shipmode"
HALF_OPEN = 300
BEGINNINGS = {
    "nothing": b"",
    "a line": b"GET / HTTP/1.1\r\n",
    "a body that never comes": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n",
    "a refusal it keeps open": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "rubbish": b"\x16\x03\x01\x02\x00\x01\x00\xff" * 20,
    "a preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}


def strangers(served: Served, beginning: bytes, count: int) -> ExitStack:
    """Return so many open sockets that have sent a beginning."""
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(socket.create_connection(("127.0.0.1", served.server.port))).sendall(
                beginning
            )
        return stack.pop_all()


@contextmanager
def request(served: Served, text: str) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", served.server.port), timeout=PATIENCE_SECONDS) as made:
        made.sendall(text.replace("\n", "\r\n").encode())
        yield made


def wait_until_closed(connection: socket.socket) -> bytes:
    """Return what came until the server closed the connection."""
    received = b""
    try:
        while part := connection.recv(65536):
            received += part
    except ConnectionResetError:
        pass
    return received


@pytest.mark.parametrize("beginning", BEGINNINGS.values(), ids=BEGINNINGS)
def test_half_open_sockets_keep_nobody_out(serve: Serve, beginning: bytes) -> None:
    served = serve(panel(MODES))
    cookie = served.cookie()
    with strangers(served, beginning, HALF_OPEN):
        assert served.get("/page/test", Cookie=cookie).status == 200
        with served.page() as page:
            page.until_panel("p1", state="exact")


def test_the_oldest_stranger_goes_when_one_more_comes(serve: Serve) -> None:
    served = serve(panel(MODES), strangers=3, request_seconds=600.0)
    with ExitStack() as stack:
        first, *others = (stack.enter_context(request(served, "GET / HTTP/1.1\nHost: x\n")) for _ in range(4))
        assert wait_until_closed(first) == b""
        for other in others:
            other.sendall(b"\r\n")
            assert b" 421 " in other.recv(100)


def test_a_stranger_has_seconds_whatever_it_does_in_them(serve: Serve) -> None:
    served = serve(panel(MODES), request_seconds=0.3)
    for text in ("", "GET / HTTP/1.1\n", "GET / HTTP/1.1\nHost: x\n\n"):
        with request(served, text) as stranger:
            wait_until_closed(stranger)


def test_a_user_who_is_served_is_no_stranger_but_must_ask_in_time(serve: Serve) -> None:
    """The page opened first is still there after sockets that came later were closed for their time."""
    served = serve(panel(MODES), request_seconds=0.3)
    known = f"GET /jobs HTTP/1.1\nHost: {served.host}\nCookie: {served.cookie()}\n"
    with served.page() as page, request(served, known + "\n") as user:
        assert b" 200 " in user.recv(100)
        user.sendall(b"GET /jobs HTTP/1.1\r\n")  # and never the rest
        wait_until_closed(user)
        page.say("name", name="Ada")
        page.say("save")
        page.until(lambda page: "saved" in page.notices)


def test_one_user_takes_no_other_users_connections(serve: Serve) -> None:
    served = serve(panel(MODES), users=("ada", "bob"), connections=2)
    ada, bob = {"Cookie": served.cookie("ada")}, {"Cookie": served.cookie("bob")}
    with served.page(user="ada"), served.page(user="ada"):
        reply = served.get("/jobs", **ada)
        assert (reply.status, reply.text) == (503, "You have too many connections open; close some pages.")
        with pytest.raises(InvalidStatus), served.page(user="ada"):
            pass
        assert served.get("/jobs", **bob).status == 200
    assert served.get("/jobs", **ada).status == 200


@pytest.mark.slow
def test_a_flood_of_sockets_keeps_nobody_out(serve: Serve) -> None:
    served = serve(panel(MODES))
    cookie = served.cookie()
    for _ in range(20):
        with strangers(served, b"GET /", 250):
            assert served.get("/page/test", Cookie=cookie).status == 200


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"\x82\x85\0\0\0\0abcde", 1003),
        (b"\x81\x82\0\0\0\0\xff\xfe", 1007),
        (b"\x81\x83\0\0\0\0\xed\xa0\x80", 1007),
        (b"\xc1\x81\0\0\0\0a", 1002),
        (b"\x81\x01a", 1002),
        (b"\x83\x81\0\0\0\0a", 1002),
        (b"\x89\xfe\x01\x00\0\0\0\0" + b"a" * 256, 1002),
        (b"\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0", 1009),
        (b"\x01\xfe\xff\xff\0\0\0\0" + b"a" * 65535 + b"\x80\xfe\xff\xff\0\0\0\0" + b"a" * 65535, 1009),
    ],
    ids=[
        "binary", "not UTF-8", "half a character", "a reserved bit", "no mask", "an unknown kind",
        "a long ping", "a length beyond all", "long in two parts",
    ],
)  # fmt: skip
def test_a_frame_that_is_no_message_ends_the_connection_with_its_code(
    serve: Serve, caplog: pytest.LogCaptureFixture, frame: bytes, code: int
) -> None:
    with serve(panel(MODES)).page() as page:
        page.socket.socket.sendall(frame)
        with pytest.raises(ConnectionClosed) as caught:
            page.until(lambda page: False)
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == code
    assert caplog.records == []


def test_a_proxy_with_tls_passes_requests_on_under_its_own_name(serve: Serve) -> None:
    served = serve(panel(MODES), address="https://charts.example.org")
    start = served.server.start_addresses["you"]
    assert start.startswith("https://charts.example.org/start?token=")
    path = start.removeprefix("https://charts.example.org")
    assert "--address" in served.get(path).text  # under the server's own name
    reply = served.get(path, Host="charts.example.org")
    cookie, *attributes = reply.headers["set-cookie"].split("; ")
    assert (reply.status, "Secure" in attributes) == (303, True)
    headers = {"Cookie": cookie, "Host": "charts.example.org"}
    assert served.get("/page/test", **headers).status == 200
    shown = {"additional_headers": {"Cookie": cookie}, "max_size": None}
    url = "ws://charts.example.org/ws?page=test"
    with (
        socket.create_connection(("127.0.0.1", served.server.port)) as way,
        connect(url, sock=way, origin="https://charts.example.org", **shown) as open_page,
    ):
        assert "update" in open_page.recv(timeout=PATIENCE_SECONDS)
    with socket.create_connection(("127.0.0.1", served.server.port)) as way, pytest.raises(InvalidStatus):
        connect(url, sock=way, origin="http://charts.example.org", **shown)


def test_a_server_for_all_of_the_machine_goes_by_the_machines_own_names(serve: Serve) -> None:
    served = serve(panel(MODES), host="0.0.0.0")
    start = served.server.start_addresses["you"]
    assert "0.0.0.0" not in start
    path = start.removeprefix(served.server.address)
    for host in (urlsplit(start).netloc, f"localhost:{served.server.port}"):
        assert served.get(path, Host=host).status == 303
    assert served.get(path, Host=f"evil.example:{served.server.port}").status == 421


@pytest.mark.parametrize(
    ("address", "opened"),
    [
        ("https://Charts.example.org:443/", "https://charts.example.org"),
        ("http://charts:80", "http://charts"),
        ("https://charts:80", "https://charts:80"),
        ("https://exämple.org", "https://xn--exmple-cua.org"),
        ("https://[2001:DB8:0::1]:8443", "https://[2001:db8::1]:8443"),
    ],
)
def test_an_address_is_taken_in_the_form_in_which_browsers_send_it(
    serve: Serve, address: str, opened: str
) -> None:
    served = serve(panel(MODES), address=address)
    assert served.server.address == opened
    path = served.server.start_addresses["you"].removeprefix(opened)
    assert served.get(path, Host=opened.partition("//")[2]).status == 303


@pytest.mark.parametrize(
    "address",
    [
        "charts.example.org",
        "ftp://charts",
        "https://",
        "https://a/charts?x=1",
        "https://[bad",
        "https://[bad]",
        "https://ada:word@charts",
        "https://@charts",
        "https://charts:99999",
        "https://charts#x",
        "https://bad host",
        "https://a..b",
        "https://straße.de",  # which browsers do not send as strasse.de
    ],
)
def test_an_address_that_browsers_cannot_open_is_refused(serve: Serve, address: str) -> None:
    with pytest.raises(RelaqsError, match="must be http:// or https:// and a host"):
        serve(panel(MODES), address=address)
