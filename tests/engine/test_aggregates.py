"""Every aggregate of DuckDB has a law, and its value is DuckDB's own over every type, in every place."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator

import duckdb
import pytest
from relaqs_engine.rewrite.aggregates import _MERGES
from relaqs_engine.sql.aggregate_laws import IN_OTHER_WORDS, LAWS, Law, Merge, call_of, mark_aggregates
from relaqs_engine.sql.functions import allowed_functions
from relaqs_engine.sql.read import Effort, read_statements

from tests.engine.aggregate_grid import PLACES, TYPES, Cell, Ways, cells, opened, outcome, outcomes_of
from tests.few_and_many import few_and_many

NAMES = [*(name for law in LAWS for name in law.names), *IN_OTHER_WORDS]
KINDS = ("rows", "key", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("group", "appended")))
# One cell in so many, of 58,000 over types and of 365,400 in places.
MANY_OF_TYPES, MANY_OF_PLACES = 97, 433
# What places are tried with: one of each kind of values that aggregates tell apart.
PLACE_TYPES = ("INTEGER", "DOUBLE with NaN", "VARCHAR", "DECIMAL(9,2)", "DATE", "BOOLEAN")


def test_every_aggregate_of_duckdb_has_one_law() -> None:
    with duckdb.connect() as connection:
        found = connection.execute(
            "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'aggregate'"
        ).fetchall()
    assert {name for (name,) in found} - set(NAMES) == set()
    assert [name for name, count in Counter(NAMES).items() if count > 1] == []
    assert set(NAMES) - {"percentile_cont", "percentile_disc"} <= allowed_functions()


def test_every_kind_of_merge_is_carried_out() -> None:
    assert set(_MERGES) == set(Merge)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_a_call_by_any_of_its_names_has_the_law(law: Law) -> None:
    """DISTINCT, ORDER BY and FILTER are found wherever sqlglot puts them, and stay if they matter."""
    given = ["x", "y"][: max(law.arguments, default=2)]
    inside = f"DISTINCT {', '.join(given)} ORDER BY x"
    for name in law.names:
        [tree] = read_statements(f"SELECT {name}({inside}) FILTER (WHERE w) FROM t", Effort())
        mark_aggregates(tree)
        call = call_of(tree.expressions[0])
        assert call is not None
        assert call.law is law
        assert [each.sql() for each in call.arguments] == given
        assert call.condition is not None
        if law.merge is Merge.ROWS or call.order:
            assert f"({inside}" in call.node.sql("duckdb").replace(", ',' ORDER", " ORDER")


def one_in(step: int, all_cells: list[Cell]) -> list[Cell]:
    """Return one cell in so many. The slow tests begin with another one each day: all have their turn."""
    is_slow = step in (MANY_OF_TYPES, MANY_OF_PLACES)
    return all_cells[datetime.date.today().toordinal() % step if is_slow else 0 :: step]


def wrong(ways: Ways, tried: list[Cell]) -> list[str]:
    found = list(outcomes_of(ways, tried))
    assert len(found) >= len(tried) / 20
    bad = [(cell, each) for cell, each in found if each.verdict in ("wrong", "raw")]
    return [f"{cell.sql}\n    {each.verdict} ({each.mode}): {each.detail}" for cell, each in bad]


@pytest.fixture(scope="module", params=KINDS)
def ways(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    """Return the table laid out by rows, by a key, by a group, and by rows of which half were appended."""
    with opened(tmp_path_factory.mktemp("grid"), request.param) as found:
        yield found


@few_and_many("step", few=811, many=MANY_OF_TYPES)
def test_every_aggregate_over_every_type(ways: Ways, step: int) -> None:
    assert wrong(ways, one_in(step, cells(TYPES, ["grouped"]))) == []


@pytest.mark.slow
@few_and_many("step", few=7001, many=MANY_OF_PLACES)
def test_every_aggregate_in_every_place(ways: Ways, step: int) -> None:
    assert wrong(ways, one_in(step, cells(PLACE_TYPES, PLACES))) == []


OF_OTHER_ROWS = (
    "WHERE t.v > (SELECT avg(v) FROM u)",
    "WHERE t.id IN (SELECT id FROM u WHERE v > (SELECT avg(v) FROM t))",
    "WHERE t.id NOT IN (SELECT id FROM u WHERE v > (SELECT avg(v) FROM t))",
    "WHERE t.h IN (SELECT h FROM u GROUP BY h HAVING sum(v) > 100)",
    "WHERE t.id < 0",
    "",
)
CALLS = (
    "max(id, 3), min(t.id, 3), arg_max(t.id, t.i32, 2), arg_min(t.id, t.i16, 3)",
    "bit_xor(DISTINCT t.i32), bit_xor(t.i32), bit_xor(DISTINCT t.u8) FILTER (t.h = 1), bit_and(t.u8)",
    "count_if(t.bool), countif(t.v > 1), count_if(t.i8 IS NULL) FILTER (t.g = 2), count_if(DISTINCT t.bool)",
    "fsum(DISTINCT t.f64), favg(DISTINCT t.f32), sumkahan(t.f64 ORDER BY t.id), fsum(t.d9) FILTER (t.g = 1)",
    "fsum(t.infinite ORDER BY t.id), favg(t.infinite ORDER BY t.id DESC), fsum(t.odd), "
    "favg(t.odd) FILTER (t.g = 1), sum_no_overflow(t.i32)",
    "arbitrary(t.i32 ORDER BY t.id), first(t.i32 ORDER BY t.id DESC), any_value(t.i32 ORDER BY t.id)",
    "corr(DISTINCT t.i8, t.i32), regr_count(DISTINCT t.i8, t.h), arg_max(DISTINCT t.id, t.id)",
    "mode() WITHIN GROUP (ORDER BY t.i8), percentile_cont(0.3) WITHIN GROUP (ORDER BY t.v DESC)",
)


@pytest.mark.parametrize("calls", CALLS)
def test_what_has_no_plain_merge_is_right_however_it_runs(ways: Ways, calls: str) -> None:
    """Each way of running asks the law: folded, refined by another table, around answers, and whole."""
    for number, rows in enumerate(OF_OTHER_ROWS):
        keys, group = ("t.g, ", "GROUP BY t.g") if number % 2 else ("", "")
        found = outcome(ways, sql := f"SELECT {keys}{calls} FROM t {rows} {group}")
        assert found.verdict in ("equal", "ambiguous"), f"{sql}\n{found}"


@pytest.mark.parametrize("call", ["sum(t.most + 1000)", "avg(1 + t.most)", "avg(t.most - 5)"])
def test_a_sum_near_the_end_of_a_type_is_computed_in_wider_numbers(ways: Ways, call: str) -> None:
    """DuckDB adds the constant to the sum, where there are no groups."""
    assert outcome(ways, f"SELECT {call} AS a FROM t").verdict == "equal"
