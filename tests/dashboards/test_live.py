"""What happens on a page while it is open: states, acts, edits, viewers, and slow ones."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import duckdb
import pytest

import relaqs
from tests.conftest import Oracle
from tests.dashboards.conftest import Page, Serve, panel
from tests.turnstile import Turnstile

pytestmark = pytest.mark.slow  # a real browser, and servers that are started again

FLAGS = (
    "SELECT l_returnflag AS flag, sum(l_quantity) AS quantity, max(l_tax) AS tax FROM lineitem "
    "GROUP BY l_returnflag ORDER BY l_returnflag"
)
MODES = "SELECT l_shipmode, count(*) AS lines FROM lineitem GROUP BY l_shipmode"
NOTHING = "SELECT l_shipmode, count(*) AS lines FROM lineitem WHERE l_quantity < 0 GROUP BY l_shipmode"
REFINED = "SELECT count(*) AS n FROM lineitem WHERE l_quantity > (SELECT avg(l_quantity) FROM lineitem)"
AROUND = "SELECT l_shipmode, count(*) AS n, rank() OVER (ORDER BY count(*)) AS place FROM lineitem GROUP BY 1"
WHOLE = "SELECT l_orderkey, row_number() OVER (ORDER BY l_orderkey) AS n FROM lineitem ORDER BY n LIMIT 5"


def test_a_panel_waits_refines_and_is_exact(serve: Serve, turnstile: Turnstile, tpch_oracle: Oracle) -> None:
    with serve(panel(FLAGS)).page() as page:
        waiting = page.until(lambda page: page.panels["p1"]["reason"] != "planning the query").panels["p1"]
        assert (waiting["state"], waiting["rows_read"], waiting["rows_total"]) == ("waiting", 0, 60_175)
        assert waiting["reason"] == "reading the first rows"
        turnstile.let(3)
        refining = page.until_panel("p1", state="refining")
        assert 0 < refining["fraction"] < 1
        assert refining["rows_read"] == round(refining["fraction"] * 60_175)
        columns = refining["answer"]["columns"]
        assert [column["name"] for column in columns] == ["flag", "quantity", "tax"]
        assert [column["kind"] for column in columns] == ["key", "estimate", "bound"]
        assert [column["type"] for column in columns] == ["text", "number", "number"]
        for _, (value, low, high, certified), (tax, at_least, unknown, _) in refining["answer"]["rows"]:
            assert low <= value <= high
            assert certified in (True, False)
            assert (tax, unknown) == (at_least, None)
        assert refining["answer"]["ranked"] is True
        turnstile.let()
        exact = page.until_panel("p1", state="exact")
        assert page.states["p1"] == ["waiting", "refining", "exact"]
        rows = [(flag, quantity[0], tax[0]) for flag, quantity, tax in exact["answer"]["rows"]]
        assert rows == [(f, float(q), float(t)) for f, q, t in tpch_oracle.rows(FLAGS)]
        assert (exact["fraction"], exact["error"]) == (1.0, 0.0)


def test_bars_for_the_table_are_said(serve: Serve, turnstile: Turnstile) -> None:
    with serve(panel(FLAGS), confidence_for="table").page() as page:
        turnstile.let(3)
        refining = page.until_panel("p1", state="refining")
        assert (refining["confidence_for"], refining["confidence"]) == ("table", 0.95)
        turnstile.let()
        page.until_panel("p1", state="exact")


def test_the_job_of_a_panel_has_its_users_name(serve: Serve, turnstile: Turnstile) -> None:
    served = serve(panel(FLAGS), users=("ada", "bob"))
    with served.page(user="bob") as page:
        turnstile.let(3)
        page.until_panel("p1", state="refining")
        assert [job.user for job in served.dashboard.runs.session.status().jobs] == ["bob"]
        turnstile.let()
        page.until_panel("p1", state="exact")


def test_the_page_says_what_it_is(serve: Serve) -> None:
    with serve(panel(MODES, chart="bars", x="l_shipmode", target=0.01, size="wide")).page() as page:
        assert (page.page["name"], page.page["title"], page.page["editable"]) == ("test", "test", True)
        (settings,) = page.page["panels"]
        assert settings == {
            "id": "p1", "title": "A panel", "sql": MODES, "chart": "bars", "size": "wide", "target": 0.01,
            "priority": 1.0, "x": "l_shipmode", "y": None, "series": None, "params": None,
            "scale": "linear",
        }  # fmt: skip
        assert [each["name"] for each in page.page["pages"]] == ["test", "tpch"]
        tables = {table["name"]: table["columns"] for table in page.page["tables"]}
        assert tables["region"][0] == {"name": "r_regionkey", "type": "BIGINT"}
        assert page.page["data"] == "TPC-H, scale 0.01"
        assert {"kind": "number", "name": "big number"} in page.page["charts"]


def test_a_target_that_is_met_is_said_and_the_rest_goes_on(serve: Serve, turnstile: Turnstile) -> None:
    with serve(panel(MODES, target=0.2)).page() as page:
        turnstile.let(3)
        met = page.until_panel("p1", state="target_met")
        assert met["error"] <= 0.2
        assert met["reason"] == "refining on idle cores"
        page.say("set", panel="p1", target=0.0001)
        refining = page.until_panel("p1", state="refining", target=0.0001)
        assert refining["fraction"] < refining["target_fraction"] < 1
        assert refining["changed_by"]["who"] == "you"
        assert refining["changed_by"]["what"] == "changed target"
        turnstile.let()
        page.until_panel("p1", state="exact")


def test_pause_and_resume_keep_the_progress(serve: Serve, turnstile: Turnstile) -> None:
    with serve(panel(FLAGS)).page() as page:
        turnstile.let(3)
        page.until_panel("p1", state="refining")
        page.say("act", panel="p1", act="pause")
        paused = page.until_panel("p1", state="paused")
        assert paused["reason"] == "paused by you"
        turnstile.let(2)  # what is underway is still folded
        page.say("act", panel="p1", act="resume")
        resumed = page.until_panel("p1", state="refining")
        assert resumed["fraction"] >= paused["fraction"] > 0
        assert resumed["run"] == paused["run"]
        turnstile.let()
        page.until_panel("p1", state="exact")


def test_good_enough_stops_and_resume_goes_on_from_there(serve: Serve, turnstile: Turnstile) -> None:
    with serve(panel(FLAGS)).page() as page:
        turnstile.let(5)
        page.until_panel("p1", state="refining")
        page.say("act", panel="p1", act="stop")
        stopped = page.until_panel("p1", state="stopped")
        assert stopped["reason"] == "stopped by you: good enough"
        assert stopped["answer"]["rows"]
        turnstile.let()
        page.say("act", panel="p1", act="resume")
        exact = page.until_panel("p1", state="exact")
        assert exact["run"] == stopped["run"]
        assert exact["elapsed_seconds"] > stopped["elapsed_seconds"]


@pytest.mark.parametrize(
    ("sql", "kept"), [(FLAGS, True), (REFINED, False), (AROUND, False)], ids=["one", "refined", "around"]
)
def test_a_panel_says_whether_its_state_is_kept(
    serve: Serve, turnstile: Turnstile, sql: str, kept: bool
) -> None:
    with serve(panel(sql)).page() as page:
        turnstile.let(4)
        assert page.until_panel("p1", state="refining")["kept"] is kept
        page.say("act", panel="p1", act="stop")
        assert page.until_panel("p1", state="stopped")["kept"] is kept
        turnstile.let()
        page.say("act", panel="p1", act="resume")
        page.until_panel("p1", state="exact")


def test_an_edit_cancels_the_run_and_starts_another(serve: Serve, turnstile: Turnstile) -> None:
    served = serve(panel(FLAGS))
    with served.page() as page:
        turnstile.let(2)
        before = page.until_panel("p1", state="refining")
        (run,) = served.dashboard.runs.all
        page.say("edit", panel="p1", sql=MODES, title="Modes", chart="bars")
        turnstile.let()
        after = page.until_panel("p1", state="exact")
        assert after["run"] > before["run"]
        assert [column["name"] for column in after["answer"]["columns"]] == ["l_shipmode", "lines"]
        assert run.state == "stopped"
        assert page.page["panels"][0]["title"] == "Modes"


def test_other_values_of_parameters_start_another_run(serve: Serve) -> None:
    sql = "SELECT count(*) AS n FROM lineitem WHERE l_returnflag = $flag"
    with serve(panel(sql)).page() as page:
        failed = page.until_panel("p1", state="failed")
        assert "$flag" in failed["failure"]["message"]
        counts = []
        for run, flag in enumerate("AR", start=2):
            page.say("edit", panel="p1", params={"flag": flag})
            counts.append(page.until_panel("p1", state="exact", run=run)["answer"]["rows"][0][0][0])
        assert len(set(counts)) == 2


def test_a_new_title_runs_nothing_anew(serve: Serve) -> None:
    with serve(panel(FLAGS)).page() as page:
        before = page.until_panel("p1", state="exact")["run"]
        page.say("edit", panel="p1", title="Another")
        page.until(lambda page: page.page["panels"][0]["title"] == "Another")
        assert page.panels["p1"]["run"] == before


def test_restart_begins_from_nothing(serve: Serve) -> None:
    with serve(panel(FLAGS)).page() as page:
        before = page.until_panel("p1", state="exact")
        page.say("act", panel="p1", act="restart")
        page.until(lambda page: page.panels["p1"]["run"] > before["run"])
        page.until_panel("p1", state="exact")


@pytest.mark.parametrize(
    ("sql", "message", "position", "candidates"),
    [
        ("SELECT 1\nFROM lineitms", "there is no table lineitms", 14, ["lineitem"]),
        ("SELECT l_tux FROM lineitem", 'Referenced column "l_tux" not found', 7, ["l_tax"]),
        ("SELECT FROM WHERE", "does not parse", None, []),
    ],
)
def test_a_broken_query_says_what_is_wrong_and_where(
    serve: Serve, sql: str, message: str, position: int | None, candidates: list[str]
) -> None:
    with serve(panel(MODES)).page() as page:
        page.until_panel("p1", state="exact")
        page.say("edit", panel="p1", sql=sql)
        failure = page.until_panel("p1", state="failed")["failure"]
        assert message in failure["message"]
        if position is not None:
            assert failure["position"] == position
        assert set(candidates) <= set(failure["candidates"])
        page.say("edit", panel="p1", sql=MODES)
        assert page.until_panel("p1", state="exact")["failure"] is None


def test_an_answer_without_rows_is_empty(serve: Serve) -> None:
    with serve(panel(NOTHING)).page() as page:
        empty = page.until_panel("p1", state="empty")
        assert empty["reason"] == "every row was read, and none matches"


def test_a_query_without_an_estimate_says_so_while_it_waits(serve: Serve, turnstile: Turnstile) -> None:
    with serve(panel(WHOLE)).page() as page:
        page.until(lambda page: "running as a whole" in (page.panels["p1"]["reason"] or ""))
        assert page.panels["p1"]["mode"] == "exact"
        turnstile.let()
        exact = page.until_panel("p1", state="exact")
        assert [row[1] for row in exact["answer"]["rows"]] == [1, 2, 3, 4, 5]


def test_two_pages_share_the_run_of_one_query_however_it_is_written(
    serve: Serve, turnstile: Turnstile
) -> None:
    served = serve(panel(FLAGS) + panel(" ".join(FLAGS.split()) + " -- the same", id="p2"))
    with served.page() as one, served.page() as other:
        turnstile.let(2)
        one.until_panel("p1", state="refining")
        other.until_panel("p2", state="refining", viewers=4)  # two panels on two pages
        assert len(served.dashboard.runs.all) == 1
        other.say("name", name="Ada")
        other.say("act", panel="p2", act="pause")
        paused = one.until_panel("p1", state="paused")
        assert paused["reason"] == "paused by Ada"
        assert one.until_panel("p2", state="paused")["changed_by"]["who"] == "Ada"
        assert "Ada paused “A panel”" in one.log
        assert one.viewers == 2


def test_a_run_ends_with_its_last_viewer_after_a_grace_time(serve: Serve, turnstile: Turnstile) -> None:
    served = serve(panel(FLAGS), grace_seconds=0.05)
    with served.page() as page:
        turnstile.let(2)
        page.until_panel("p1", state="refining")
        (run,) = served.dashboard.runs.all
    assert run.query is not None
    assert run.query.wait(20)
    assert run.query.state == "stopped"
    assert served.dashboard.runs.all == ()


def test_a_new_server_goes_on_where_the_last_one_was(serve: Serve, turnstile: Turnstile) -> None:
    served = serve(panel(FLAGS), grace_seconds=0.05)
    with served.page() as page:
        turnstile.let(6)
        before = page.until_panel("p1", state="refining")
        (run,) = served.dashboard.runs.all
        turnstile.wait_until_used()
    assert run.query is not None
    assert run.query.wait(20)
    with serve(panel(FLAGS)).page() as page:  # not one task runs here
        after = page.until_panel("p1", state="refining")
        assert after["fraction"] >= before["fraction"]
        assert after["elapsed_seconds"] >= before["elapsed_seconds"]
        turnstile.let()
        page.until_panel("p1", state="exact")


def test_within_the_grace_time_a_reload_finds_its_run(serve: Serve, turnstile: Turnstile) -> None:
    served = serve(panel(FLAGS), grace_seconds=60.0)
    with served.page() as page:
        turnstile.let(2)
        page.until_panel("p1", state="refining")
        before = served.dashboard.runs.all
    with served.page() as page:
        assert page.panels["p1"]["state"] == "refining"
        assert page.panels["p1"]["answer"]["rows"]
        assert served.dashboard.runs.all == before


def test_a_slow_page_gets_the_newest_and_never_a_queue(serve: Serve, turnstile: Turnstile) -> None:
    served = serve(panel(FLAGS) + panel(MODES, id="p2"))
    with served.page() as page:
        page.receive()
        turnstile.let()
        with pytest.raises(TimeoutError):  # nothing comes while one update is not acknowledged
            page.socket.recv(timeout=1.0)
        for run in served.dashboard.runs.all:
            assert run.query is not None
            assert run.query.wait(20)
        page.say("ack", seq=page.seq)
        page.until(lambda page: {panel["state"] for panel in page.panels.values()} == {"exact"})
        assert page.seq <= 8  # some dozens of snapshots were merged into what was sent


def test_a_page_has_at_most_five_updates_a_second(serve: Serve) -> None:
    with serve(panel(FLAGS)).page() as page:
        started, before = time.monotonic(), page.seq
        for number in range(30):
            page.say("edit", panel="p1", title=f"Title {number}")
        page.until(lambda page: page.page["panels"][0]["title"] == "Title 29")
        assert page.seq - before <= 1 + 5 * (time.monotonic() - started + 0.2)


def test_panels_are_added_and_removed_for_everybody(serve: Serve) -> None:
    served = serve(panel(FLAGS))
    with served.page() as one, served.page() as other:
        one.say("add", panel={"title": "Modes", "sql": MODES, "chart": "bars", "size": "small"})
        other.until_panel("p2", state="exact")
        assert [each["title"] for each in other.page["panels"]] == ["A panel", "Modes"]
        other.say("remove", panel="p1")
        one.until(lambda page: [each["id"] for each in page.page["panels"]] == ["p2"])
        assert len(served.dashboard.runs.all) == 1


@pytest.mark.parametrize(
    ("sql", "chart"),
    [
        (MODES, "bars"),
        ("SELECT count(*) AS n FROM lineitem", "number"),
        ("SELECT date_trunc('year', l_shipdate) AS y, count(*) AS n FROM lineitem GROUP BY y", "line"),
        ("SELECT * FROM lineitem LIMIT 3", "table"),
    ],
)
def test_a_panel_without_a_chart_gets_the_one_that_fits_its_answer(
    serve: Serve, sql: str, chart: str
) -> None:
    served = serve(panel(FLAGS))
    with served.page() as page:
        page.until(lambda page: page.page)
        page.say("add", panel={"title": "New", "sql": sql})
        page.until(lambda page: [each["chart"] for each in page.page["panels"]][1:] == [chart])


def test_a_page_is_made_for_everybody_and_a_text_runs_nothing(serve: Serve) -> None:
    served = serve(panel(FLAGS))
    with served.page() as page:
        page.say("new", title="Delays & more")
        made = {"name": "delays-more", "title": "Delays & more"}
        page.until(lambda so_far: made in so_far.page["pages"])
        note = {"title": "Note", "sql": "Read this first.\nThen that.", "chart": "text"}
        page.say("add", panel=note)
        page.until(lambda so_far: so_far.panels.get("p2", {}).get("state") == "exact")
        assert len(served.dashboard.runs.all) == 1
        page.say("edit", panel="p2", chart="table", sql=FLAGS)
        page.until(lambda so_far: "answer" in so_far.panels["p2"])
    assert "delays-more" in [each.name for each in served.dashboard.pages.pages("you")]


def test_a_panel_is_moved_for_everybody(serve: Serve) -> None:
    served = serve(panel(FLAGS) + panel(MODES, id="p2") + panel(MODES, id="p3"))
    with served.page() as one, served.page() as other:
        one.say("move", panel="p1", before="p3")
        other.until(lambda page: [each["id"] for each in page.page["panels"]] == ["p2", "p1", "p3"])
        other.say("move", panel="p2", before=None)
        one.until(lambda page: [each["id"] for each in page.page["panels"]] == ["p1", "p3", "p2"])
        one.say("move", panel="p1", before="p1")  # which changes nothing
        one.say("move", panel="p1", before="p9")
        one.until(lambda page: any("there is no panel 'p9'" in notice for notice in page.notices))
        assert [each["id"] for each in one.page["panels"]] == ["p1", "p3", "p2"]


@pytest.mark.parametrize(
    "asked",
    [
        {"type": "edit", "panel": "p1", "title": "Mine"},
        {"type": "act", "panel": "p1", "act": "stop"},
        {"type": "filter", "panel": "p1", "column": "l_shipmode", "values": ["AIR"]},
        {"type": "unfilter", "filter": None},
        {"type": "grain", "unit": "day"},
        {"type": "move", "panel": "p1", "before": None},
        {"type": "remove", "panel": "p1"},
        {"type": "new", "title": "Mine"},
        {"type": "save"},
    ],
)
def test_a_reader_sees_the_page_and_changes_nothing(serve: Serve, asked: dict[str, Any]) -> None:
    served = serve(panel(MODES), users=("ada",), readers=("bob",))
    with served.page(user="ada") as ada, served.page(user="bob") as bob:
        assert ada.page["editable"]
        assert not bob.page["editable"]
        assert bob.until_panel("p1", state="exact")["answer"]["rows"]
        bob.socket.send(json.dumps(asked))
        bob.until(lambda page: "you may look at this page, and not change it" in page.notices)
        ada.say("edit", panel="p1", title="Ada's")
        ada.until(lambda page: [each["title"] for each in page.page["panels"]] == ["Ada's"])


def test_saving_writes_the_page_and_a_new_server_has_it(serve: Serve) -> None:
    served = serve()
    with served.page("tpch") as page:
        page.say("edit", panel="forecast", title="Forecast", sql="SELECT count(*) AS n FROM orders")
        page.say("save")
        page.until(lambda page: "saved" in page.notices)
    again = serve()
    with again.page("tpch") as page:
        titles = {each["id"]: each["title"] for each in page.page["panels"]}
        assert titles["forecast"] == "Forecast"
        assert page.until_panel("forecast", state="exact")["answer"]["rows"][0][0][0] == 15_000


def test_changes_that_were_not_saved_outlive_the_server(serve: Serve) -> None:
    with serve().page("tpch") as page:
        page.say("edit", panel="forecast", title="Forecast")
        page.until(lambda page: any(each["title"] == "Forecast" for each in page.page["panels"]))
        page.say("remove", panel="promotion")
        page.until(lambda page: all(each["id"] != "promotion" for each in page.page["panels"]))
    with serve().page("tpch") as page:
        titles = {each["id"]: each["title"] for each in page.page["panels"]}
        assert titles["forecast"] == "Forecast"
        assert "promotion" not in titles


def test_changes_are_discarded_for_everybody_and_for_good(serve: Serve) -> None:
    """Queries that stay the same go on; an edited one is as it was, an added one ends."""
    served = serve()
    with served.page("tpch") as page, served.page("tpch") as other:
        saved = page.page["panels"]
        other.until_panel("pricing", run=1)
        page.say("edit", panel="forecast", sql="SELECT count(*) AS n FROM orders", title="Orders")
        page.say("add", panel={"title": "Modes", "sql": MODES, "chart": "bars", "size": "small"})
        page.say("remove", panel="promotion")
        other.until(lambda page: all(each["id"] != "promotion" for each in page.page["panels"]))
        page.say("discard")
        other.until(lambda page: page.page["panels"] == saved)
        other.until_panel("forecast", state="exact", run=3)
        assert other.panels["pricing"]["run"] == 1
    with serve().page("tpch") as page:
        assert page.page["panels"] == saved


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"type": "edit", "panel": "p1", "chart": "pie"}, "chart is 'pie'; it must be one of bars"),
        ({"type": "edit", "panel": "p9", "title": "x"}, "there is no panel 'p9' on page 'test'"),
        ({"type": "set", "panel": "p1", "target": 7}, "target is 7; it must be a relative error up to 1"),
        ({"type": "set", "panel": "p1", "priority": 0}, "priority is 0; it must be a number from"),
        ({"type": "act", "panel": "p1", "act": "explode"}, "an act is one of stop, pause"),
        ({"type": "add", "panel": {"title": "t"}}, "a panel is incomplete: it has no sql"),
        ({"type": "fly"}, "there is no message 'fly'"),
        ("not JSON", "the message is not JSON"),
    ],
)
def test_a_request_that_makes_no_sense_is_answered_in_words(
    serve: Serve, entries: dict[str, Any] | str, said: str
) -> None:
    with serve(panel(MODES)).page() as page:
        page.socket.send(entries if isinstance(entries, str) else json.dumps(entries))
        page.until(lambda page: page.notices)
        assert said in page.notices[0]
        assert page.until_panel("p1", state="exact")["answer"]["rows"]


def test_the_cluster_and_its_moves_are_told(serve: Serve, turnstile: Turnstile) -> None:
    with serve(panel(FLAGS, title="Flags") + panel(MODES, id="p2", title="Modes")).page() as page:
        page.until(lambda page: page.cluster is not None and len(page.cluster["jobs"]) == 2)
        assert page.cluster is not None
        assert page.cluster["capacity"] == 2
        assert {(job["name"], job["panel"], job["kind"]) for job in page.cluster["jobs"]} == {
            ("Flags", "p1", "query"),
            ("Modes", "p2", "query"),
        }
        page.until(lambda page: any("cores: it is new" in line for line in page.log))
        turnstile.let()


def test_the_page_of_all_jobs_needs_no_page(serve: Serve, turnstile: Turnstile) -> None:
    served = serve(panel(FLAGS, title="Flags"))
    with served.page() as page, served.page(name="") as jobs:
        page.until_panel("p1", state="waiting")
        jobs.until(lambda page: page.cluster is not None and page.cluster["jobs"])
        assert jobs.page["title"] == "All jobs"
        assert [job["name"] for job in jobs.cluster["jobs"]] == ["Flags"]  # type: ignore[index]


def test_what_is_more_than_a_user_may_run_waits_its_turn(serve: Serve, turnstile: Turnstile) -> None:
    served = serve(panel(FLAGS) + panel(MODES, id="p2"), running_queries=1)

    def reasons(page: Page) -> set[str]:
        return {(each.get("reason") or "").split(";")[0] for each in page.panels.values()}

    with served.page() as page:
        page.until(lambda page: "you has 1 queries running, the most allowed" in reasons(page))
        turnstile.let()
        page.until(lambda page: {each["state"] for each in page.panels.values()} == {"exact"})


def test_panels_run_anew_once_their_files_have_changed(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two panels that share a run do. One of another table does not, and one that failed is mended."""
    monkeypatch.setattr("relaqs_dashboards.dashboard.FOLLOW_SECONDS", 0.05)
    data = tmp_path / "data"
    data.mkdir()
    for name in ("trips", "others"):
        duckdb.sql("SELECT range AS id FROM range(50)").write_parquet(str(data / f"{name}.parquet"))
    counted = "SELECT count(*) AS n FROM {}"
    panels = (
        panel(counted.format("trips"), id="p1"),
        panel(counted.format("trips"), id="p2"),
        panel(counted.format("others"), id="p3"),
        panel("SELECT max(size) AS n FROM trips", id="p4"),
    )
    with serve("\n".join(panels), data=data).page() as page:
        for id in ("p1", "p2", "p3"):
            assert page.until_panel(id, state="exact")["answer"]["rows"] == [[50]]
        page.until_panel("p4", state="failed")
        others = page.panels["p3"]["run"]
        duckdb.sql("SELECT range AS id, 3 AS size FROM range(70)").write_parquet(str(data / "trips.parquet"))
        for id, wanted in (("p1", [[70]]), ("p2", [[70]]), ("p4", [[3]])):
            page.until(lambda page, id=id, wanted=wanted: _rows(page, id) == wanted)
        assert page.panels["p3"]["run"] == others
        assert "“A panel” reads rows that have changed" in page.log


def test_a_panel_shows_what_was_appended(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state that is kept of its query is one of the rows before, and is left alone."""
    monkeypatch.setattr("relaqs_dashboards.dashboard.FOLLOW_SECONDS", 0.05)
    trips = tmp_path / "data" / "trips"
    relaqs.shuffle(duckdb.sql("SELECT range AS id FROM range(50000)"), trips, partitions=8)
    with serve(panel("SELECT sum(id) AS total FROM trips"), data=trips.parent).page() as page:
        page.until(lambda page: _rows(page, "p1") == [[50_000 * 49_999 // 2]])
        relaqs.append(duckdb.sql("SELECT 1_000_000 AS id FROM range(7)"), trips)
        page.until(lambda page: _rows(page, "p1") == [[50_000 * 49_999 // 2 + 7_000_000]])


def _rows(page: Page, id: str) -> object:
    """Return the rows of a panel's exact answer without intervals, None where there is none yet."""
    found = page.panels[id]
    if found["state"] != "exact" or not found.get("answer"):
        return None
    return [[each[0] if isinstance(each, list) else each for each in row] for row in found["answer"]["rows"]]
