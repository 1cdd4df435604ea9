"""Filters of a page: what is selected in one panel restarts those it concerns, and keeps the others."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from relaqs_dashboards.access import Limits
from relaqs_dashboards.filters import (
    Brush,
    Filter,
    FilterError,
    by_unit,
    condition_of,
    ends_within,
    filtered,
    in_period,
    partial_periods,
    period_of,
    reading_of,
)
from relaqs_dashboards.runs import Runs
from relaqs_dashboards.settings import PanelSettings

import relaqs
from tests.dashboards.conftest import Page, Serve, panel
from tests.turnstile import Turnstile

FLAGS = "SELECT l_returnflag AS flag, count(*) AS n FROM lineitem GROUP BY flag ORDER BY flag"
MODES = "SELECT l_shipmode AS mode, sum(l_quantity) AS quantity FROM lineitem GROUP BY mode ORDER BY mode"
NATIONS = "SELECT n_name, n_regionkey FROM nation ORDER BY n_name"
PAGE = panel(FLAGS, id="flags") + panel(MODES, id="modes") + panel(NATIONS, id="nations")
EVIL = "'); DROP TABLE lineitem; --"
TABLES = {"trips": ("zone", "at", "fare"), "zones": ("zone", "name")}


def ended(page: Page, *ids: str) -> Page:
    """Take updates until these panels have exact answers."""
    return page.until(lambda so_far: all(so_far.panels[id]["state"] in ("exact", "empty") for id in ids))


def test_a_selection_restarts_the_panels_it_concerns_and_keeps_the_others(
    serve: Serve, tpch_oracle: Any
) -> None:
    with serve(PAGE).page() as page:
        ended(page, "flags", "modes", "nations")
        assert page.panels["flags"]["brushes"] == ["flag"]
        before = {id: state["run"] for id, state in page.panels.items()}
        page.say("filter", panel="flags", column="flag", values=["R", "A"])
        page.until(lambda so_far: so_far.panels["modes"]["run"] != before["modes"])
        ended(page, "modes")
        (found,) = page.page["filters"]
        selection = {"values": ["R", "A"]}
        assert found == {
            "id": "f1",
            "panel": "flags",
            "column": "flag",
            "selection": selection,
            "table": None,
        }
        assert page.panels["modes"]["filters"] == ["f1"]
        page.until(lambda so_far: so_far.panels["nations"]["unfiltered"] is not None)
        assert page.panels["nations"]["unfiltered"] == "it does not read lineitem"
        assert page.panels["flags"]["unfiltered"] is None  # what was selected there filters others
        assert [page.panels[id]["run"] - before[id] for id in ("flags", "modes", "nations")] == [0, 1, 0]
        rows = {mode: Decimal(str(cell[0])) for mode, cell in page.panels["modes"]["answer"]["rows"]}
        wanted = MODES.replace("GROUP", "WHERE l_returnflag IN ('R', 'A') GROUP")
        assert rows == dict(tpch_oracle.rows(wanted))
        page.say("unfilter", filter="f1")
        page.until(lambda so_far: so_far.panels["modes"]["run"] == before["modes"] + 2)
        ended(page, "modes")
        assert page.page["filters"] == []
        rows = {mode: Decimal(str(cell[0])) for mode, cell in page.panels["modes"]["answer"]["rows"]}
        assert rows == dict(tpch_oracle.rows(MODES))


def test_the_same_selection_again_restarts_nothing(serve: Serve) -> None:
    with serve(PAGE).page() as page:
        ended(page, "flags", "modes")
        for _ in range(2):
            page.say("filter", panel="flags", column="flag", values=["R"])
        page.say("unfilter", filter="f9")
        page.say("filter", panel="flags", column="flag", values=["A"])
        page.until(
            lambda so_far: (
                so_far.page["filters"][:1] and so_far.page["filters"][0]["selection"] == {"values": ["A"]}
            )
        )
        ended(page, "modes")
        assert len(page.page["filters"]) == 1


def test_an_edited_panel_lets_go_of_what_was_selected_in_it(serve: Serve) -> None:
    with serve(PAGE).page() as page:
        ended(page, "flags", "modes")
        page.say("filter", panel="flags", column="flag", values=["R"])
        page.until(lambda so_far: so_far.page["filters"])
        page.say("edit", panel="flags", sql=NATIONS)
        page.until(lambda so_far: not so_far.page["filters"])
        page.until(
            lambda so_far: (
                not so_far.panels["modes"]["filters"] and so_far.panels["modes"]["state"] == "exact"
            )
        )


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"column": "flag", "values": [7]}, "7 is no value of the type string"),
        ({"column": "flag", "values": []}, "a selection has 1 to 200 values"),
        ({"column": "flag", "values": ["R"] * 201}, "a selection has 1 to 200 values"),
        ({"column": "flag", "range": ["R"]}, "a selection has 1 to 200 values, or a range of two"),
        ({"column": "n", "values": [1]}, "'n' cannot be selected in this panel; it has: flag"),
        ({"column": "flag", "values": ["R"], "range": [1, 2]}, "filter has a panel, a column"),
        ({"column": "flag", "values": ["R"], "sql": "1 = 1"}, "filter has a panel, a column"),
        ({"values": ["R"]}, "filter has a panel, a column"),
    ],
)
def test_selections_that_are_none_are_refused(serve: Serve, entries: dict[str, Any], said: str) -> None:
    with serve(PAGE).page() as page:
        ended(page, "flags")
        page.say("filter", panel="flags", **entries)
        page.until(lambda so_far: so_far.notices)
        assert said in page.notices[0]
        assert page.page["filters"] == []


def test_what_is_selected_is_a_value_and_never_sql(serve: Serve) -> None:
    with serve(PAGE).page() as page:
        ended(page, "flags", "modes")
        page.say("filter", panel="flags", column="flag", values=[EVIL])
        page.until(lambda so_far: so_far.panels["modes"]["state"] == "empty")
        assert page.panels["modes"]["failure"] is None


def test_a_panel_that_cannot_be_filtered_says_so(serve: Serve) -> None:
    own = "WITH lineitem AS (SELECT * FROM lineitem) SELECT count(*) AS n FROM lineitem"
    with serve(panel(FLAGS, id="flags") + panel(own, id="own")).page() as page:
        ended(page, "flags", "own")
        page.say("filter", panel="flags", column="flag", values=["R"])
        page.until(lambda so_far: so_far.panels["own"]["unfiltered"])
        assert "its WITH has a query that is called lineitem" in page.panels["own"]["unfiltered"]
        assert page.panels["own"]["filters"] == []


def test_a_filter_that_comes_while_a_panel_is_read_ends_that_run(serve: Serve, turnstile: Turnstile) -> None:
    served = serve(PAGE)
    with served.page() as page:
        turnstile.let(8)
        page.until(lambda so_far: "flag" in so_far.panels["flags"]["brushes"])
        before = {run.sql: run for run in served.dashboard.runs.all}
        page.say("filter", panel="flags", column="flag", values=["R"])
        page.until_panel("modes", filters=["f1"])
        assert before[MODES].state == "stopped"
        turnstile.let()
        ended(page, "flags", "modes")


@pytest.mark.parametrize(
    ("sql", "brushes"),
    [
        ("SELECT zone, count(*) FROM trips GROUP BY zone", {0: '"zone"'}),
        ("SELECT t.zone % 5 AS k, sum(fare) FROM trips t GROUP BY k", {0: '"zone" % 5'}),
        ("SELECT name, count(*) FROM trips JOIN zones USING (zone) GROUP BY 1", {0: '"name"'}),
        ("SELECT name, count(*) FROM trips LEFT JOIN zones USING (zone) GROUP BY 1", {}),
        ("SELECT zone, name FROM trips FULL JOIN zones USING (zone)", {}),
        ("SELECT zone || name AS k FROM trips JOIN zones USING (zone)", {}),
        ("SELECT zone FROM (SELECT zone FROM trips) AS t", {}),
        ("SELECT * FROM trips", {}),
        ("SELECT 1 AS one, max(zone) AS zone FROM trips", {}),
        ("WITH trips AS (SELECT 1 AS zone) SELECT zone FROM trips", {}),
        ("SELECT zone FROM trips UNION ALL SELECT zone FROM trips", {}),
    ],
)
def test_what_can_be_selected_is_an_expression_over_one_table(sql: str, brushes: dict[int, str]) -> None:
    found = reading_of(sql, TABLES).brushes
    assert {position: brush.expression for position, brush in found.items()} == brushes


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*), 'é 日本' FROM trips",
        "SELECT count(*) FROM Trips AS t -- trips\nWHERE t.zone >= 0",
        'SELECT count(*) FROM "trips" WHERE "trips".zone >= 0',
        "SELECT (SELECT count(*) FROM trips) + count(*) FROM trips a JOIN trips b USING (zone)",
        "WITH few AS (FROM trips) SELECT count(*) FROM few, trips",
        "SELECT count(*) FROM range(3), trips WHERE EXISTS (FROM trips)",
    ],
)
def test_a_filtered_query_reads_as_if_its_table_had_only_those_rows(sql: str) -> None:
    rows = "SELECT i % 3 AS zone, 1 AS fare, i AS at FROM range(12) AS r(i)"
    zone = Filter("f1", "p1", "zone", "trips", "zone IN (1, 2)", {})
    text = filtered(sql, [zone], TABLES)
    with duckdb.connect() as whole, duckdb.connect() as part:
        whole.execute(f"CREATE TABLE trips AS {rows}")
        part.execute(f"CREATE TABLE trips AS SELECT * FROM ({rows}) WHERE zone IN (1, 2)")
        assert whole.execute(text).fetchall() == part.execute(sql).fetchall()


def test_a_query_over_what_may_hide_a_table_is_not_filtered() -> None:
    zone = Filter("f1", "p1", "zone", "trips", "zone = 1", {})
    with pytest.raises(FilterError, match="it reads late_trips, which may be made of other tables"):
        filtered("SELECT count(*) FROM trips, late_trips", [zone], TABLES)


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        ("it's", pa.string()),
        (True, pa.bool_()),
        (7, pa.int64()),
        ("9007199254740993", pa.int64()),
        (0.1, pa.float64()),
        (1e300, pa.float64()),
        (None, pa.float64()),
        (1234.56, pa.decimal128(15, 2)),
        ("2020-02-29", pa.date32()),
        ("2020-02-29T01:02:03.000004", pa.timestamp("us")),
    ],
)
def test_a_value_finds_its_own_row(value: Any, type_: pa.DataType) -> None:
    """What the page is told of a value, and sends back, is equal to it in DuckDB."""
    from relaqs_dashboards.answers import _cell

    sent = {"string": str, "bool": bool}.get(str(type_), lambda each: each)(value)
    text = condition_of(Brush("t", '"x"', False), {"values": [sent]}, type_)
    cast = {"decimal128(15, 2)": "DECIMAL(15, 2)", "date32[day]": "DATE", "timestamp[us]": "TIMESTAMP"}
    kind = (
        cast.get(str(type_))
        or {"string": "VARCHAR", "bool": "BOOLEAN", "int64": "BIGINT", "double": "DOUBLE"}[str(type_)]
    )
    with duckdb.connect() as oracle:
        oracle.execute(f"CREATE TABLE t AS SELECT CAST($1 AS {kind}) AS x", [value])
        assert oracle.execute(f"SELECT count(*) FROM t WHERE {text}").fetchall() == [(1,)]
        assert _cell(oracle.execute("SELECT x FROM t").fetchall()[0][0]) == value


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        ("x" * 501, pa.string()),
        ("1e999999", pa.int64()),
        ("NaN", pa.float64()),
        (True, pa.int64()),
        ("1) OR (1 = 1", pa.int64()),
        ("2020-13-01", pa.date32()),
        ([1], pa.list_(pa.int64())),
    ],
)
def test_a_value_that_is_none_of_its_type_is_refused(value: Any, type_: pa.DataType) -> None:
    with pytest.raises(FilterError):
        condition_of(Brush("t", '"x"', False), {"values": [value]}, type_)


@pytest.mark.parametrize(
    ("unit", "first", "last", "partial"),
    [
        ("month", dt.date(2024, 1, 1), dt.date(2024, 3, 31), ()),
        ("month", dt.date(2024, 1, 1), dt.date(2024, 3, 20), ("2024-03-01",)),
        ("month", dt.date(2024, 1, 12), dt.date(2024, 1, 20), ("2024-01-01",)),
        ("year", dt.date(2013, 1, 1), dt.date(2013, 12, 31), ()),
        ("quarter", dt.date(2024, 2, 1), dt.date(2024, 12, 30), ("2024-01-01",)),
        ("week", dt.date(2024, 1, 1), dt.date(2024, 1, 7), ()),  # a Monday and a Sunday
        ("day", "2022-01-05 06:00:00", dt.datetime(2022, 2, 15, 23, 59), ("2022-01-05",)),
        (
            "hour",
            dt.datetime(2022, 1, 5, 6, 30),
            dt.datetime(2022, 1, 5, 8, 59, 58),
            ("2022-01-05T06:00:00",),
        ),
        ("month", None, "no moment", ()),
    ],
)
def test_the_first_and_the_last_period_may_be_filled_in_part(
    unit: str, first: object, last: object, partial: tuple[str, ...]
) -> None:
    assert partial_periods(unit, first, last) == partial


def test_periods_are_found_in_what_an_answer_is_grouped_by() -> None:
    sql = "SELECT date_trunc('week', at) AS w, zone, date_trunc('day', at) + INTERVAL 1 DAY AS d FROM trips"
    brushes = reading_of(sql, TABLES).brushes
    assert {i: period_of(brush) for i, brush in brushes.items()} == {0: ("at", "week"), 1: None, 2: None}


MONTHS = (
    "SELECT date_trunc('month', l_shipdate) AS month, count(*) AS n FROM lineitem GROUP BY month ORDER BY 1"
)
SHOWN = panel(MONTHS, id="months", title="By month", chart="line", x="month") + panel(NATIONS, id="nations")


def test_a_period_filters_what_reads_the_table_and_marks_the_months_it_cuts(
    serve: Serve, tpch_oracle: Any
) -> None:
    with serve(SHOWN).page() as page:
        ended(page, "months", "nations")
        page.until(lambda so_far: so_far.page["times"])
        (shipped,) = (each for each in page.page["times"] if each["column"] == "l_shipdate")
        assert (shipped["table"], shipped["has_hours"]) == ("lineitem", False)
        assert page.page["units"] == ["month"]
        page.say("period", table="lineitem", column="l_shipdate", range=["1994-01-20", "1994-03-31"])
        page.until_panel("months", filters=["time"])
        ended(page, "months")
        rows = [(month[:10], cell[0]) for month, cell in page.panels["months"]["answer"]["rows"]]
        wanted = MONTHS.replace(
            "GROUP", "WHERE l_shipdate BETWEEN DATE '1994-01-20' AND DATE '1994-03-31' GROUP"
        )
        assert rows == [(str(month)[:10], n) for month, n in tpch_oracle.rows(wanted)]
        assert page.panels["months"]["partial"] == {"month": ["1994-01-01"]}
        page.until(lambda so_far: so_far.panels["nations"]["unfiltered"] == "it does not read lineitem")
        (found,) = page.page["filters"]
        assert (found["panel"], found["table"], found["column"]) == ("", "lineitem", "l_shipdate")
        page.say("period", table="lineitem", column="l_shipdate", range=None)
        page.until(lambda so_far: so_far.page["filters"] == [])


def test_panels_over_time_show_it_by_another_unit(serve: Serve, tpch_oracle: Any) -> None:
    with serve(SHOWN).page() as page:
        ended(page, "months", "nations")
        page.say("grain", unit="quarter")
        page.until(lambda so_far: so_far.page["units"] == ["quarter"])
        page.until_panel("months", run=2)
        ended(page, "months")
        settings = page.page["panels"][0]
        assert settings["sql"] == MONTHS.replace("month", "quarter")
        assert (settings["title"], settings["x"]) == ("By quarter", "quarter")
        wanted = tpch_oracle.rows(MONTHS.replace("month", "quarter"))
        assert len(page.panels["months"]["answer"]["rows"]) == len(wanted)
        assert page.panels["nations"]["run"] == 1


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        (
            {"table": "lineitem", "column": "l_orderkey", "range": ["1994-01-01", "1994-02-01"]},
            "no column of time",
        ),
        ({"table": "x", "column": EVIL, "range": ["1994-01-01", "1994-02-01"]}, "no column of time"),
        (
            {"table": "lineitem", "column": "l_shipdate", "range": [EVIL, "1994-02-01"]},
            "from one day to another",
        ),
        (
            {"table": "lineitem", "column": "l_shipdate", "range": ["1994-02-01", "1994-01-01"]},
            "before it begins",
        ),
        (
            {"table": "lineitem", "column": "l_shipdate", "range": ["1994-02-01", "9999-12-31"]},
            "one day to another",
        ),
        ({"table": "lineitem", "column": "l_shipdate", "range": ["1994-02-01"]}, "a range of two days"),
    ],
)
def test_what_is_no_period_is_refused(serve: Serve, entries: dict[str, Any], said: str) -> None:
    with serve(SHOWN).page() as page:
        ended(page, "months")
        page.say("period", **entries)
        page.until(lambda so_far: so_far.notices)
        assert said in page.notices[0]
        assert page.page["filters"] == []


@pytest.mark.parametrize(
    ("sql", "unit", "wanted"),
    [
        (
            "week', at) AS week, n FROM trips ORDER BY week",
            "day",
            "day', at) AS day, n FROM trips ORDER BY day",
        ),
        ("WEEK', at) w, n FROM trips", "year", "year', at) w, n FROM trips"),
        ("day', at) AS day, day(at) FROM trips", "month", "month', at) AS month, day(at) FROM trips"),
        (
            "day', at) AS day FROM trips WHERE at > now() - INTERVAL 3 day",
            "hour",
            "hour', at) AS hour FROM trips WHERE at > now() - INTERVAL 3 day",
        ),
        (
            "month', at) AS month FROM trips WHERE zone = 'month' AND extract(month FROM at) IN (1, 2)",
            "day",
            "day', at) AS day FROM trips WHERE zone = 'month' AND extract(month FROM at) IN (1, 2)",
        ),
        (
            "month', at) AS month, 'month' AS é FROM trips t GROUP BY month, t.month "
            "ORDER BY extract(month FROM month)",
            "day",
            "day', at) AS day, 'month' AS é FROM trips t GROUP BY day, t.month "
            "ORDER BY extract(month FROM day)",
        ),
        (
            "month', at) AS m, count(*) FROM trips WHERE date_trunc('month', at) = DATE '2024-01-01' "
            "GROUP BY DATE_TRUNC('month', trips.at) ORDER BY date_trunc('month', AT)",
            "day",
            "day', at) AS m, count(*) FROM trips WHERE date_trunc('month', at) = DATE '2024-01-01' "
            "GROUP BY DATE_TRUNC('day', trips.at) ORDER BY date_trunc('day', AT)",
        ),
        (
            "month', at) AS month, count(DISTINCT date_trunc('month', at)) FROM trips GROUP BY 1",
            "week",
            "week', at) AS week, count(DISTINCT date_trunc('month', at)) FROM trips GROUP BY 1",
        ),
        (
            "month', at) AS month, sum(count(*)) OVER (ORDER BY month) FROM trips GROUP BY 1",
            "week",
            "week', at) AS week, sum(count(*)) OVER (ORDER BY week) FROM trips GROUP BY 1",
        ),
        (
            "month', at) AS month, n AS day FROM trips ORDER BY month",
            "day",
            "day', at) AS month, n AS day FROM trips ORDER BY month",
        ),
        (
            "month', at) AS month, n FROM trips WHERE month > DATE '2024-01-01'",
            "day",
            "month', at) AS month, n FROM trips WHERE month > DATE '2024-01-01'",
        ),
    ],
)
def test_the_unit_changes_in_the_text_and_nothing_else_does(sql: str, unit: str, wanted: str) -> None:
    before, after = (f"SELECT date_trunc('{text}" for text in (sql, wanted))
    assert by_unit(PanelSettings("p", "A", before), reading_of(before, TABLES), unit).sql == after
    other = PanelSettings("p", "By day", "SELECT zone AS day, count(*) FROM trips GROUP BY day")
    assert by_unit(other, reading_of(other.sql, TABLES), unit) == other


@pytest.mark.parametrize("column", ["month", "day"])
@pytest.mark.parametrize("condition", ["flights.month > 6", "month IN (1, 2)", "day = 1", "kind = 'month'"])
def test_a_key_keeps_its_name_where_a_table_has_a_column_called_like_a_unit(
    column: str, condition: str
) -> None:
    sql = f"SELECT date_trunc('month', at) AS month, count(*) FROM flights WHERE {condition} GROUP BY 1"
    before = PanelSettings("p", "By month", sql, x="month")
    after = by_unit(before, reading_of(sql, {"flights": ["at", "kind", column]}), "day")
    if column == "day" and condition.startswith("month"):  # which is the key, by its name
        assert after == before
    else:
        assert after == replace(before, title="By day", sql=sql.replace("'month', at", "'day', at"))


def test_the_name_of_a_key_is_compared_as_duckdb_compares_names() -> None:
    sql = """SELECT date_trunc('month', at) AS "Month", count(*) FROM trips GROUP BY MONTH"""
    after = by_unit(PanelSettings("p", "A", sql, x="Month", y="n"), reading_of(sql, TABLES), "day")
    assert after.sql == """SELECT date_trunc('day', at) AS "day", count(*) FROM trips GROUP BY day"""
    assert (after.x, after.y) == ("day", "n")


@pytest.mark.parametrize("type_text", ["DATE", "TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMP_S", "TIMESTAMP_NS"])
def test_a_period_has_the_whole_of_its_last_day(type_text: str) -> None:
    moments = ["2024-01-01 00:00:00", "2024-01-31 23:59:59", "2024-02-01 00:00:00", "2023-12-31 23:59:59"]
    condition = in_period("t", 'a "b"', type_text, ("2024-01-01", "2024-01-31")).condition
    with duckdb.connect() as connection:
        values = ", ".join(f"('{moment}'::{type_text})" for moment in moments)
        counted = connection.execute(f'SELECT count(*) FROM (VALUES {values}) t("a ""b""") WHERE {condition}')
        assert counted.fetchall() == [(2,)]


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York", "UTC"])
def test_a_period_from_the_first_to_the_last_day_that_is_offered_has_all_rows(
    tmp_path: Path, zone: str
) -> None:
    """Ends of a column of moments with a zone are known in UTC, and a period is of days of the session's."""
    moments = duckdb.sql(
        "SELECT TIMESTAMPTZ '2024-01-01 00:00:00+00' + to_hours(i::INT) AS seen FROM range(743) t(i)"
    )
    relaqs.shuffle(moments, tmp_path / "data" / "visits", partitions=2)
    with relaqs.connect(tmp_path / "data", threads=1, timezone=zone) as session:
        runs = Runs(session, tmp_path / "state", Limits())
        runs.measured = session.tables
        (found,) = runs.times_of({"visits"})
        shown = session.sql(
            "SELECT min(seen)::DATE::VARCHAR, max(seen)::DATE::VARCHAR FROM visits"
        ).fetchall()
        assert [(found.first, found.last)] == shown
        condition = in_period("visits", "seen", "TIMESTAMPTZ", (found.first, found.last)).condition
        assert session.sql(f"SELECT count(*) FROM visits WHERE {condition}").fetchall() == [(743,)]
        ends = runs.ends_of("visits", "seen")
    assert ends is not None
    assert (
        partial_periods("day", *ends)
        == {
            "UTC": ("2024-01-31",),
            "Asia/Tokyo": ("2024-01-01", "2024-02-01"),
            "America/New_York": ("2023-12-31", "2024-01-31"),
        }[zone]
    )


def test_ends_of_moments_are_those_of_the_period_where_it_is_shorter() -> None:
    period = in_period("t", "at", "TIMESTAMP", ("2024-01-10", "2024-02-20"))
    ends = ends_within(("2024-01-12 05:00:00", "2024-05-01 00:00:00"), period)
    assert partial_periods("month", *ends) == ("2024-01-01", "2024-02-01")
    assert partial_periods("day", *ends) == ("2024-01-12",)
