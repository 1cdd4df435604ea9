"""Aggregates without an estimate end as in DuckDB, and others beside them keep their intervals."""

from __future__ import annotations

import pytest
from relaqs_engine.plans.plan import Mode, OutputKind

from tests.engine.world import World

OF_ALL = (
    "string_agg(carrier, '|' ORDER BY carrier)",
    "string_agg(DISTINCT carrier, '|' ORDER BY carrier)",
    "list(distance ORDER BY distance, dep_delay) FILTER (WHERE distance > 2500)",
    "list_sort(list(DISTINCT hour))",
    "histogram(hour)",
    "histogram(hour, [6, 12, 18])",
    "entropy(hour)",
    "mode() WITHIN GROUP (ORDER BY flight % 3)",
    "mad(distance)",
    "max(distance, 3)",
    "arg_max(distance, distance, 2)",
    "first(distance ORDER BY distance DESC NULLS LAST)",
    "count(DISTINCT (origin, carrier))",
    "quantile_cont(distance, [0.1, 0.5])",
    "json_group_array(1)",
)


@pytest.mark.parametrize("aggregate", OF_ALL)
def test_it_does_not_make_the_others_exact(flights: World, aggregate: str) -> None:
    sql = f"SELECT origin, avg(distance) AS a, {aggregate} AS x FROM flights GROUP BY origin"
    plan = flights.check(sql)
    assert plan.mode is Mode.MERGEABLE
    assert [output.kind for output in plan.outputs[1:]] == [OutputKind.ESTIMATE, OutputKind.OPAQUE]
    *_, before, _ = flights.estimates(plan, batches=4)
    rows = before.table.to_pylist()
    assert any(row["a_certified"] for row in rows)
    assert not any(row["x_certified"] for row in rows)


def test_groups_without_values_end_as_in_duckdb(flights: World) -> None:
    """A number of no values is 0 where a list of them is NULL. Lists of several lengths stay apart."""
    none = "FILTER (WHERE origin = 'JFK' AND distance > 2500)"
    flights.check(
        f"SELECT origin, list(distance ORDER BY distance) {none} AS l, entropy(hour) {none} AS e, "
        f"count(DISTINCT (hour, carrier)) {none} AS c, approx_count_distinct(hour) {none} AS a, "
        "list(hour ORDER BY hour) AS h FROM flights WHERE distance > 2400 OR hour = 5 GROUP BY origin"
    )


def test_an_approximate_count_is_at_least_what_was_seen(flights: World) -> None:
    plan = flights.check("SELECT approx_count_distinct(distance) AS n, avg(distance) AS a FROM flights")
    assert (plan.outputs[0].kind, plan.outputs[0].side) == (OutputKind.BOUND, "least")
    [(final,)] = flights.oracle.rows("SELECT approx_count_distinct(distance) FROM flights")
    seen = [estimate.table.to_pylist()[0]["n_low"] for estimate in flights.estimates(plan, batches=8)]
    assert seen == sorted(seen)
    assert seen[-1] == final


def test_quantiles_of_one_column_are_computed_together(flights: World) -> None:
    plan = flights.folded(
        "SELECT origin, median(distance) AS a, quantile_cont(distance, 0.9) AS b, "
        "quantile_cont(distance, 0.1) AS c FROM flights GROUP BY origin"
    )
    assert plan.texts.merge.count("quantile_cont(") == 1
    assert "MEDIAN(" not in plan.texts.merge
    flights.check(plan.sql)


def test_distinct_values_are_counted_beside_a_variance(flights: World) -> None:
    """Their number is known of all rows of a layout, and of others as far as they were read."""
    for rows, kind in (("", OutputKind.DISTINCT), (" WHERE distance > 500", OutputKind.OPAQUE)):
        plan = flights.check(f"SELECT stddev(distance) AS s, count(DISTINCT carrier) AS n FROM flights{rows}")
        assert [output.kind for output in plan.outputs] == [OutputKind.ESTIMATE, kind]


def test_the_order_of_arguments_does_not_matter_to_a_sum(flights: World) -> None:
    plan = flights.check("SELECT sum(distance ORDER BY hour) AS s FROM flights")
    assert plan.outputs[0].kind is OutputKind.ESTIMATE


def test_first_and_last_take_one_row_and_keep_it(flights: World) -> None:
    """FIRST takes NULLs, ANY_VALUE does not, and groups that a FILTER leaves empty have NULL."""
    unique = "time_hour, carrier, flight, dep_delay"
    flights.check(
        f"SELECT origin, first(dep_delay ORDER BY distance DESC, {unique}) AS f, "
        f"last(tailnum ORDER BY {unique}) AS l, any_value(tailnum ORDER BY distance, {unique}) AS v, "
        "first(carrier ORDER BY flight, carrier) FILTER (WHERE origin = 'JFK') AS j "
        "FROM flights GROUP BY origin"
    )
    flights.check("SELECT first(carrier ORDER BY flight) AS f, count(*) AS n FROM flights WHERE distance < 0")


def test_distinct_on_takes_the_first_row_of_each_key(flights: World) -> None:
    plan = flights.check(
        "SELECT DISTINCT ON (carrier) carrier, flight, origin, dep_delay FROM flights "
        "ORDER BY carrier DESC, distance DESC, time_hour, flight LIMIT 5",
        ordered=True,
    )
    assert plan.mode is Mode.MERGEABLE


def test_order_by_all_is_each_output_from_left_to_right(flights: World) -> None:
    plan = flights.check(
        "SELECT origin, count(*) AS n, carrier FROM flights GROUP BY ALL ORDER BY ALL DESC", ordered=True
    )
    assert plan.outputs[1].kind is OutputKind.ESTIMATE


@pytest.mark.parametrize(("named", "key"), [("f.carrier", "carrier"), ("carrier", "f.carrier")])
def test_a_column_that_using_shares_is_one_column(flights: World, named: str, key: str) -> None:
    joined = "flights f JOIN airlines a USING (carrier)"
    plan = flights.check(f"SELECT {named}, name, avg(distance) AS d FROM {joined} GROUP BY {key}, name")
    assert plan.mode is Mode.MERGEABLE
