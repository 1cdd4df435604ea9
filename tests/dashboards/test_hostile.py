"""Requests and statements of somebody who means harm: each is refused, or bounded."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from relaqs_dashboards.access import COOKIE_SECONDS, Keys, kept_secret
from relaqs_dashboards.requests import LONGEST_BYTES
from relaqs_dashboards.settings import LONGEST_SQL, MOST_PANELS
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from tests.dashboards.conftest import Page, Serve, Served, panel, serving

MODES = "SELECT l_shipmode, count(*) AS lines FROM lineitem GROUP BY l_shipmode"
COOKIE, OWN = "the user's", "this server's"  # stand for what is known only once it runs
PRIVATE = "title = 'Mine'\nowner = 'ada'\n" + panel(MODES)

# What it is, the request, its headers, and the statuses of which one must come.
REQUESTS: dict[str, tuple[str, str, dict[str, str], set[int]]] = {
    "no token": ("GET", "/start", {}, {403}),
    "a wrong token": ("GET", "/start?token=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", {}, {403}),
    "a token that is not ASCII": ("GET", "/start?token=%C3%A9%00", {}, {403}),
    "a page without a cookie": ("GET", "/page/test", {}, {403}),
    "the bundle without a cookie": ("GET", "/static/app.js", {}, {403}),
    "an export without a cookie": ("GET", "/export/test/p1.csv", {}, {403}),
    "a cookie nobody signed": ("GET", "/page/test", {"Cookie": "{name}=you.9999999999.x.abc"}, {403}),
    "a cookie of rubbish": ("GET", "/page/test", {"Cookie": '{name}="\\377\\"; =; ;;'}, {403}),
    "a post from another site": (
        "POST",
        "/page/test",
        {"Cookie": COOKIE, "Origin": "http://evil.example"},
        {405},
    ),
    "a post from here": ("POST", "/page/test", {"Cookie": COOKIE, "Origin": OWN}, {405}),
    "a put": ("PUT", "/static/app.js", {"Cookie": COOKIE}, {405}),
    "a delete": ("DELETE", "/page/test", {"Cookie": COOKIE}, {405}),
    "another origin": (
        "GET",
        "/export/test/p1.csv",
        {"Cookie": COOKIE, "Origin": "http://evil.example"},
        {403},
    ),
    "an origin that is null": ("GET", "/page/test", {"Cookie": COOKIE, "Origin": "null"}, {403}),
    "an image on another site": (
        "GET",
        "/export/test/p1.csv",
        {"Cookie": COOKIE, "Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"},
        {403},
    ),
    "a name that was rebound": ("GET", "/page/test", {"Cookie": COOKIE, "Host": "evil.example"}, {421}),
    "a name that begins like ours": (
        "GET",
        "/page/test",
        {"Cookie": COOKIE, "Host": "127.0.0.1.evil.example"},
        {421},
    ),
    "another port's name": ("GET", "/page/test", {"Cookie": COOKIE, "Host": "127.0.0.1:1"}, {421}),
    "an empty name": ("GET", "/page/test", {"Cookie": COOKIE, "Host": ""}, {400, 421}),
    "a file above the bundle": ("GET", "/static/../server.py", {"Cookie": COOKIE}, {404}),
    "the same, encoded": ("GET", "/static/..%2f..%2fserver.py", {"Cookie": COOKIE}, {404}),
    "the same, encoded twice": ("GET", "/static/%252e%252e%252fserver.py", {"Cookie": COOKIE}, {404}),
    "an absolute file": ("GET", "/static//etc/passwd", {"Cookie": COOKIE}, {404}),
    "the secret": ("GET", "/page/..%2f..%2fsecret", {"Cookie": COOKIE}, {404}),
    "the audit log": ("GET", "/audit.jsonl", {"Cookie": COOKIE}, {404}),
    "an export above its page": ("GET", "/export/test/..%2f..%2faudit.csv", {"Cookie": COOKIE}, {404}),
    "an export of another kind": ("GET", "/export/test/p1.toml", {"Cookie": COOKIE}, {404, 409}),
    "a page that is a template": ("GET", "/page/%7B%7Bconfig%7D%7D", {"Cookie": COOKIE}, {404}),
    "a path that is too long": ("GET", "/page/" + "x" * 70_000, {"Cookie": COOKIE}, {400, 404, 431}),
}

STATEMENTS = [
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_blob('/proc/self/environ')",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_parquet('/**/*.parquet')",
    "SELECT * FROM glob('/*')",
    "SELECT * FROM '/etc/passwd'",
    'SELECT * FROM "/etc/hosts"',
    "SELECT count(*) FROM lineitem WHERE l_comment IN (SELECT content FROM read_text('/etc/passwd'))",
    "SELECT * FROM sniff_csv('/etc/passwd')",
    "SELECT * FROM parquet_metadata('x.parquet')",
    "SELECT getenv('HOME')",
    "SELECT current_setting('temp_directory')",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM pg_catalog.pg_settings",
    "SELECT * FROM sqlite_master",
    "SELECT * FROM query('SELECT 1')",
    "SELECT * FROM query_table(['lineitem'])",
    "SELECT * FROM session",
    "SELECT * FROM served",
    "SELECT * FROM df",
    "ATTACH '/tmp/x.db'",
    "ATTACH ':memory:' AS x; SELECT 1",
    "COPY lineitem TO '/tmp/x.csv'",
    "COPY (SELECT 1) TO '/tmp/x.csv'",
    "EXPORT DATABASE '/tmp/x'",
    "PRAGMA database_list",
    "SET enable_external_access = true",
    "SET VARIABLE x = 1",
    "RESET lock_configuration",
    "INSTALL httpfs",
    "LOAD httpfs",
    "CREATE TABLE t AS SELECT 1",
    "DROP TABLE lineitem",
    "INSERT INTO region VALUES (9, 'x', 'y')",
    "UPDATE region SET r_name = 'x'",
    "DELETE FROM region",
    "SELECT 1; DROP TABLE lineitem",
    "SELECT 1 FROM region; SELECT 2 FROM region",
    "CALL pragma_version()",
    "EXPLAIN ANALYZE SELECT 1",
    "SHOW ALL TABLES",
    "SELECT ? FROM region",
    "SELECT $x FROM region",
    "(((" * 2000,
]

ENDLESS = [
    "SELECT sum((a.l_orderkey * b.l_partkey * c.l_suppkey) % 7) AS n FROM lineitem a, lineitem b, lineitem c",
    "SELECT a.l_orderkey, count(*) OVER () AS n FROM lineitem a, lineitem b, lineitem c",
    "WITH RECURSIVE t(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM t) SELECT count(*) AS n FROM t",
]

HUGE = [
    "SELECT * FROM lineitem",
    "SELECT a.*, b.* FROM lineitem a, lineitem b ORDER BY 1, 2",
    "SELECT l_orderkey, l_linenumber, l_comment, count(*) AS n FROM lineitem GROUP BY ALL",
    "SELECT repeat(l_comment, 10000) AS t FROM lineitem",
    "SELECT list(l_comment) AS t FROM lineitem GROUP BY l_returnflag",
]


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory, tpch_warehouse: Path) -> Iterator[Served]:
    """One server for everything that must leave no trace in it."""
    with serving(tmp_path_factory.mktemp("attacked"), tpch_warehouse, panel(MODES)) as served:
        yield served


@pytest.fixture
def served(serve: Serve) -> Served:
    return serve(panel(MODES))


@pytest.mark.parametrize("what", REQUESTS)
def test_a_hostile_request_is_refused(attacked: Served, what: str) -> None:
    method, path, headers, statuses = REQUESTS[what]
    cookie = attacked.cookie()
    name = cookie.split("=")[0]
    meant = {COOKIE: cookie, OWN: f"http://{attacked.host}"}
    sent = {key: meant.get(value, value.replace("{name}", name)) for key, value in headers.items()}
    reply = attacked.request(method, path, **sent)
    assert reply.status in statuses, reply.text
    assert "set-cookie" not in reply.headers
    assert b"root:" not in reply.body
    assert len(reply.body) < 500


def test_headers_without_end_are_cut_off(attacked: Served) -> None:
    try:
        reply = attacked.get("/", Cookie=attacked.cookie(), X_Long="x" * 300_000)
    except OSError:  # the server closed while they were still being sent
        return
    assert reply.status in (400, 431)


HANDSHAKES: dict[str, dict[str, Any]] = {
    "no cookie": {"additional_headers": {}},
    "a cookie nobody signed": {"additional_headers": {"Cookie": "relaqs=you.9999999999.x.abc"}},
    "another site's page": {"origin": "http://evil.example"},
    "no origin": {"origin": None},
    "a page of another port": {"origin": "http://127.0.0.1:1"},
    "a page over https": {"origin": "https://127.0.0.1"},
}


@pytest.mark.parametrize("what", HANDSHAKES)
def test_a_websocket_opens_for_nobody_else(attacked: Served, what: str) -> None:
    with pytest.raises(InvalidStatus) as caught, attacked.page(**HANDSHAKES[what]):
        pass
    assert caught.value.response.status_code == 403


def test_a_websocket_by_another_name_does_not_open(attacked: Served) -> None:
    headers = {"Cookie": attacked.cookie()}
    sock = socket.create_connection(("127.0.0.1", attacked.server.port))
    evil = f"ws://localhost.evil.example:{attacked.server.port}/ws?page=test"
    with (
        pytest.raises(InvalidStatus) as caught,
        connect(evil, additional_headers=headers, origin=f"http://{attacked.host}", sock=sock),
    ):
        pass
    assert caught.value.response.status_code == 403


@pytest.mark.parametrize("sql", STATEMENTS, ids=lambda sql: sql[:50])
def test_a_hostile_statement_is_refused(attacked: Served, sql: str) -> None:
    with attacked.page() as page:
        page.say("edit", panel="p1", sql=sql)
        page.until(lambda page: page.page["panels"][0]["sql"] == sql)
        failed = page.until_panel("p1", state="failed")
        assert failed["failure"]["message"]
        assert "root:" not in json.dumps(failed)


@pytest.mark.parametrize("sql", ENDLESS, ids=["sum", "window", "recursion"])
def test_an_endless_query_ends(serve: Serve, sql: str) -> None:
    with serve(panel(sql), run_seconds=1.0).page() as page:
        page.until(lambda page: page.panels["p1"]["state"] in ("failed", "stopped"))
        said = page.panels["p1"]["reason"] or page.panels["p1"]["failure"]["message"]
        assert "1 s, the most that a query may run" in said or "no snapshot came within 1.0 s" in said


@pytest.mark.parametrize("sql", HUGE, ids=["rows", "cross join", "groups", "texts", "lists"])
def test_a_huge_answer_is_bounded(serve: Serve, sql: str) -> None:
    with serve(panel(sql), result_limit="1MiB").page() as page:
        page.until(lambda page: page.panels["p1"]["state"] in ("failed", "exact"))
        panel_ = page.panels["p1"]
        if panel_["state"] == "failed":
            said = panel_["failure"]["message"]
            assert "the most allowed here" in said or "raise memory_limit" in said
        assert len(json.dumps(panel_)) < 2 << 20
        assert len(panel_.get("answer", {}).get("rows", [])) <= 1000


def test_many_large_answers_of_one_user_are_bounded(serve: Serve) -> None:
    groups = "SELECT l_orderkey, count(*) AS n FROM lineitem WHERE l_tax < {} GROUP BY l_orderkey"
    text = "".join(panel(groups.format(i), id=f"p{i}") for i in range(1, 5))
    with serve(text, answer_bytes=900_000).page() as page:
        page.until(
            lambda page: any(
                "answers would take more" in (each["reason"] or "") for each in page.panels.values()
            )
        )


def test_a_message_that_is_too_long_ends_the_connection(served: Served) -> None:
    with served.page() as page:
        page.say("edit", panel="p1", title="x" * (2 * LONGEST_BYTES))
        with pytest.raises(ConnectionClosed) as caught:
            page.until(lambda page: False)
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1009


def flood(page: Page) -> None:
    with contextlib.suppress(ConnectionClosed):  # it may end before the last is sent
        for number in range(500):
            page.say("name", name=str(number))


def test_a_flood_of_messages_ends_the_connection(served: Served) -> None:
    with served.page() as page:
        flood(page)
        with pytest.raises(ConnectionClosed) as caught:
            page.until(lambda page: False)
    assert caught.value.rcvd is not None
    assert (caught.value.rcvd.code, caught.value.rcvd.reason) == (1008, "too many messages")


@pytest.mark.parametrize(
    "message",
    [
        "[" * 30_000,
        '{"type": {"__proto__": 1}}',
        '{"type": "ack", "seq": "1"}',
        json.dumps({"type": "edit", "panel": "../secret", "title": "x"}),
        json.dumps({"type": "edit", "panel": "p1", "id": "../../secret"}),
        json.dumps({"type": "edit", "panel": "p1", "sql": "x" * (LONGEST_SQL + 1)}),
        json.dumps({"type": "edit", "panel": "p1", "title": {"a": 1}}),
        json.dumps({"type": "add", "panel": {"title": "t", "sql": "s", "owner": "ada"}}),
        json.dumps({"type": "set", "panel": "p1", "priority": 1e308}),
        '{"type": "set", "panel": "p1", "target": NaN}',
        json.dumps({"type": "remove", "panel": "p2"}),
    ],
    ids=lambda message: message[:60],
)
def test_a_hostile_message_changes_nothing(attacked: Served, message: str) -> None:
    with attacked.page() as page:
        before = page.page
        page.socket.send(message)
        page.until(lambda page: page.notices)
        assert len(page.notices[0]) < 500
        assert page.page == before


def test_a_page_does_not_grow_without_end(serve: Serve) -> None:
    text = "".join(panel(MODES, id=f"p{number}") for number in range(MOST_PANELS))
    with serve(text).page() as page:
        page.say("add", panel={"title": "One more", "sql": MODES})
        page.until(lambda page: page.notices)
        assert f"{MOST_PANELS} is the most" in page.notices[0]
        assert len(page.page["panels"]) == MOST_PANELS


def test_so_many_pages_are_open_and_no_more(serve: Serve) -> None:
    served = serve(panel(MODES), pages_open=1)
    with served.page(), pytest.raises(ConnectionClosed) as caught, served.page():
        pass
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1013


def test_a_page_with_a_name_beyond_all_is_not_there(attacked: Served) -> None:
    with pytest.raises(ConnectionClosed) as caught, attacked.page("%F0%9F%98%80" * 500):
        pass
    assert caught.value.rcvd is not None
    assert (caught.value.rcvd.code, caught.value.rcvd.reason) == (4404, "there is no such page")


def test_another_users_page_is_as_one_that_is_not_there(serve: Serve) -> None:
    served = serve(PRIVATE, users=("ada", "bob"))
    ada, bob = {"Cookie": served.cookie("ada")}, {"Cookie": served.cookie("bob")}
    assert served.get("/page/test", **ada).status == 200
    for path in ("/page/test", "/export/test/p1.csv"):
        reply = served.get(path, **bob)
        assert (reply.status, reply.text) == (404, "there is no page 'test'")
    with served.page(user="ada") as own:
        own.until_panel("p1", state="exact")
        with pytest.raises(ConnectionClosed) as caught, served.page(user="bob"):
            pass
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 4404
        with served.page("tpch", user="bob") as other:
            assert "test" not in [each["name"] for each in other.page["pages"]]
        assert own.page["title"] == "Mine"


def test_another_users_queries_have_no_names_on_the_page_of_all_jobs(serve: Serve, turnstile: Any) -> None:
    served = serve(PRIVATE, users=("ada", "bob"))
    with served.page(user="ada"), served.page(name="", user="bob") as jobs:
        jobs.until(lambda page: page.cluster is not None and page.cluster["jobs"])
        (job,) = jobs.cluster["jobs"]  # type: ignore[index]
        assert (job["name"], job["panel"]) == ("another query", None)


def test_titles_and_names_are_text_and_never_html(serve: Serve) -> None:
    evil = "<script>alert(1)</script><img src=x onerror=alert(1)>"
    served = serve(f"title = {json.dumps(evil)}\n" + panel(MODES, title=evil))
    reply = served.get("/page/test", Cookie=served.cookie())
    assert evil not in reply.text
    assert "&lt;script&gt;" in reply.text
    assert reply.text.count("<script") == 1


def test_every_reply_has_the_headers_that_keep_a_browser_safe(attacked: Served) -> None:
    cookie = attacked.cookie()
    for path in ("/page/test", "/static/none.js", "/nowhere", "/jobs"):
        headers = attacked.get(path, Cookie=cookie).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self';" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers


def test_the_cookie_is_for_this_server_alone(attacked: Served) -> None:
    address = attacked.server.start_addresses["you"].removeprefix(attacked.server.address)
    reply = attacked.get(address)
    assert (reply.status, reply.headers["location"]) == (303, "/")
    cookie = reply.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert cookie.startswith(f"relaqs-{attacked.server.port}=")


def test_a_cookie_ends_with_its_time_its_user_and_its_secret(tmp_path: Path) -> None:
    now = 1000.0
    secret = kept_secret(tmp_path / "secret")
    keys = Keys(("ada", "bob"), secret, clock=lambda: now)
    cookie = keys.cookie("ada")
    assert keys.user_of_cookie(cookie) == "ada"
    assert keys.user_of_cookie(cookie.replace("ada", "bob")) is None
    assert Keys(("bob",), secret, clock=lambda: now).user_of_cookie(cookie) is None
    assert Keys(("ada",), b"another", clock=lambda: now).user_of_cookie(cookie) is None
    now += COOKIE_SECONDS
    assert keys.user_of_cookie(cookie) is None
    assert kept_secret(tmp_path / "secret") == secret
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600


def test_what_was_asked_and_refused_is_written_down(served: Served) -> None:
    served.get("/page/test", Host="evil.example")
    with served.page() as page:
        page.say("edit", panel="p1", sql="SELECT * FROM read_text('/etc/passwd')")
        page.until_panel("p1", state="failed")
    entries = [json.loads(line) for line in (served.state / "audit.jsonl").read_text().splitlines()]
    assert {"started", "opened", "refused", "changed sql"} <= {entry["what"] for entry in entries}
    (changed,) = [entry for entry in entries if entry["what"] == "changed sql"]
    assert (changed["user"], changed["panel"]) == ("you", "p1")
    assert changed["sql"] == "SELECT * FROM read_text('/etc/passwd')"


def test_a_flood_of_refusals_leaves_what_was_asked_in_the_log(served: Served) -> None:
    for _ in range(300):
        assert served.get("/page/test").status == 403
    lines = (served.state / "audit.jsonl").read_text().splitlines()
    assert 200 <= sum(json.loads(line)["what"] == "refused" for line in lines) < 220


def test_the_server_is_on_this_machine_alone(attacked: Served) -> None:
    assert attacked.server._socket.getsockname()[0] == "127.0.0.1"
