"""Queries whose rows or groups are compared with an aggregate over all partitions: estimates, and the end."""

from __future__ import annotations

import numpy as np
import pytest
from relaqs_engine.execution import refined
from relaqs_engine.execution.estimate import Estimate
from relaqs_engine.plans.composite import Range
from relaqs_engine.plans.plan import Mode

from relaqs.jobs.job import Step, TaskResult
from relaqs.queries.composite import RefinedQueryJob
from relaqs.queries.jobs import Asked
from relaqs.queries.start import query_job
from tests.engine.world import World, own_columns

ABOVE_MEAN = (
    "SELECT l_returnflag, count(*) AS n, sum(l_extendedprice) AS s, avg(l_tax) AS a FROM lineitem "
    "WHERE l_extendedprice > (SELECT 1.1 * avg(l_extendedprice) FROM lineitem) GROUP BY 1"
)
QUERIES = [
    ABOVE_MEAN,
    "SELECT count(*) AS n, max(l_tax) AS t FROM lineitem "
    "WHERE l_quantity > (SELECT avg(l_quantity) FROM lineitem)",
    "SELECT count(*) AS n FROM lineitem WHERE (SELECT stddev(l_quantity) FROM lineitem) >= l_quantity",
    "SELECT stddev(l_tax) AS d FROM lineitem "
    "WHERE l_extendedprice < (SELECT avg(o_totalprice) / 5 FROM orders)",
    "SELECT count(*) AS n FROM orders, lineitem WHERE o_orderkey = l_orderkey "
    "AND l_extendedprice < (SELECT avg(o_totalprice) / 4 FROM orders WHERE o_orderstatus = 'F')",
    # Nothing to compare with: no row has an average.
    "SELECT count(*) AS n, sum(l_tax) AS t FROM lineitem "
    "WHERE l_tax > (SELECT avg(l_tax) FROM lineitem WHERE l_quantity < 0)",
    # A threshold that many rows are equal to.
    "SELECT count(*) AS n FROM lineitem WHERE l_linenumber >= (SELECT max(l_linenumber) - 1 FROM lineitem)",
    "SELECT count(*) AS n FROM lineitem WHERE l_discount = (SELECT min(l_discount) FROM lineitem)",
    "SELECT l_linenumber, count(*) AS n FROM lineitem WHERE l_quantity > 25 * "
    "(SELECT avg(l_tax) FROM lineitem) AND l_tax < (SELECT avg(l_tax) FROM lineitem) GROUP BY 1",
    "SELECT count(*) AS n FROM lineitem "
    "WHERE l_quantity > l_linenumber * (SELECT avg(l_linenumber) FROM lineitem)",
    # Correlated.
    "SELECT sum(l_extendedprice) AS s FROM lineitem AS l, part WHERE p_partkey = l.l_partkey AND p_size < 9 "
    "AND l_quantity < (SELECT 0.8 * avg(l_quantity) FROM lineitem WHERE l_partkey = p_partkey)",
    "SELECT count(*) AS n FROM lineitem AS l "
    "WHERE l_extendedprice >= (SELECT max(l_extendedprice) FROM lineitem WHERE l_suppkey = l.l_suppkey)",
    "SELECT count(*) AS n FROM orders "
    "WHERE 600 > (SELECT count(*) FROM lineitem WHERE l_suppkey = o_custkey)",
    "SELECT count(*) AS n FROM orders "
    "WHERE o_custkey IN (SELECT l_suppkey FROM lineitem GROUP BY 1 HAVING sum(l_quantity) > 15000)",
    "SELECT count(*) AS n FROM orders "
    "WHERE o_custkey NOT IN (SELECT l_suppkey FROM lineitem GROUP BY 1 HAVING sum(l_quantity) > 15000)",
    # After aggregation.
    "SELECT l_suppkey, sum(l_quantity) AS q, "
    "sum(l_quantity) / (SELECT sum(l_quantity) FROM lineitem) AS share FROM lineitem "
    "GROUP BY 1 HAVING sum(l_quantity) > (SELECT sum(l_quantity) * 0.0101 FROM lineitem)",
    "SELECT l_orderkey, sum(l_quantity) AS q FROM lineitem GROUP BY 1 "
    "HAVING sum(l_quantity) > (SELECT avg(l_quantity) * 9 FROM lineitem)",
]


def job_for(world: World, sql: str, batches: int | None = None) -> RefinedQueryJob:
    job = query_job(
        "test",
        world.plan(sql),
        world.catalog,
        Asked(world.config, batches=batches),
        state_cursor=world.states.cursor(),
        exact_config=world.config,
    )
    assert isinstance(job, RefinedQueryJob)
    return job


def run(job: RefinedQueryJob, in_flight: int = 1) -> list[Estimate]:
    """Return the job's estimates. in_flight: steps issued before the oldest is folded, as runners do."""
    steps: list[Step] = []
    found = []
    while True:
        while len(steps) < in_flight and (step := job.next_step()) is not None:
            steps.append(step)
        step = steps.pop(0)
        report = job.fold(step, [TaskResult(task.key, task.work.run(job.id), 0.0) for task in step.tasks])
        if job.latest is not None:
            found.append(job.latest)
        if report.is_final:
            return found


@pytest.mark.parametrize("sql", QUERIES)
@pytest.mark.parametrize("batches", [3, None])
def test_the_end_is_duckdbs_own_answer(tpch: World, sql: str, batches: int | None) -> None:
    assert tpch.check(sql, batches=batches).mode is Mode.REFINED


def test_rows_far_from_the_value_are_folded_at_once(tpch: World) -> None:
    """The tasks decide: what is kept is a small share of the candidates, though every price is another."""
    job = job_for(tpch, ABOVE_MEAN)
    assert run(job)[-1].is_exact
    [(rows,)] = tpch.oracle.rows("SELECT count(*) FROM lineitem")
    assert job.kept_row_count < 0.35 * rows


@pytest.mark.parametrize("in_flight", [1, 2])
def test_leaving_the_range_decides_rows_anew(
    tpch: World, monkeypatch: pytest.MonkeyPatch, in_flight: int
) -> None:
    """In ranges that are too narrow the value leaves soon; no estimate may show it."""
    with monkeypatch.context() as patch:
        patch.setattr(refined, "RANGE_STANDARD_ERRORS", 1e9)  # nothing is decided
        undecided = {each.fraction: each.table for each in run(job_for(tpch, ABOVE_MEAN, batches=8))}
    monkeypatch.setattr(refined, "RANGE_STANDARD_ERRORS", 0.0)
    job = job_for(tpch, ABOVE_MEAN, batches=8)
    estimates = run(job, in_flight)
    assert job.redone_steps > 0
    fractions = [estimate.fraction for estimate in estimates]
    assert fractions == sorted(set(fractions))
    assert estimates[-1].is_exact
    for estimate in estimates:
        ours, theirs = (
            table.sort_by("l_returnflag") for table in (estimate.table, undecided[estimate.fraction])
        )
        assert ours.select(["l_returnflag", "n", "s"]) == theirs.select(["l_returnflag", "n", "s"])
        for name in ("n_low", "n_high", "s_low", "s_high", "a_low"):
            np.testing.assert_allclose(
                ours.column(name).to_numpy(), theirs.column(name).to_numpy(), rtol=1e-6
            )


def test_the_estimates_do_not_depend_on_the_steps_in_flight(tpch: World) -> None:
    one, other = (run(job_for(tpch, ABOVE_MEAN), in_flight) for in_flight in (1, 2))
    for a, b in zip(one, other, strict=True):
        assert a.table.sort_by("l_returnflag") == b.table.sort_by("l_returnflag")


def test_a_value_of_few_rows_certifies_nothing(tpch: World) -> None:
    sql = (
        "SELECT count(*) AS n FROM lineitem "
        "WHERE l_extendedprice > (SELECT avg(l_extendedprice) FROM lineitem WHERE l_orderkey < 100)"
    )
    first, *_ = run(job_for(tpch, sql, batches=4))
    assert not first.certified.any()


def test_a_threshold_among_equal_rows_is_not_certified(tpch: World) -> None:
    """Whether the rows of line number 3 count turns on the last digit of an average; blocks all agree."""
    [(mean,)] = tpch.oracle.rows("SELECT avg(l_linenumber) FROM lineitem")
    sql = (
        "SELECT count(*) AS n FROM lineitem "
        f"WHERE l_linenumber > (SELECT avg(l_linenumber) * {3.0 / mean!r} FROM lineitem)"
    )
    estimates = run(job_for(tpch, sql, batches=6))
    assert not any(estimate.certified.any() for estimate in estimates[:-1])


def test_rows_are_compared_with_the_others_of_their_group(tpch: World) -> None:
    """At a quarter, seven rows a group: testing rows against means that they are part of loses a third."""
    sql = (
        "SELECT sum(l_extendedprice) AS s FROM lineitem AS l "
        "WHERE l_quantity < "
        "(SELECT 0.2 * avg(x.l_quantity) FROM lineitem AS x WHERE x.l_partkey = l.l_partkey)"
    )
    first, *_, last = run(job_for(tpch, sql, batches=4))
    assert first.fraction == pytest.approx(0.25, abs=0.05)
    ours, exact = (float(each.table.column("s")[0].as_py()) for each in (first, last))
    assert ours == pytest.approx(exact, rel=0.15)
    assert not first.certified.any()


def test_complete_groups_beside_an_estimated_value_are_certified_when_far_from_it(tpch: World) -> None:
    sql = QUERIES[16]
    *so_far, last = run(job_for(tpch, sql, batches=4))
    final = {row["l_orderkey"]: row["q"] for row in own_columns(last).to_pylist()}
    certified = [row for each in so_far for row in each.table.to_pylist() if row["q_certified"]]
    assert certified
    assert all(final.get(row["l_orderkey"]) == row["q"] for row in certified)


def test_distinct_values_of_a_group_whose_rows_are_folded_in_parts(tpch: World) -> None:
    """Rows far from the average are folded at once, others later: what both count must not be added up."""
    tpch.check(
        "SELECT l_orderkey, count(DISTINCT l_suppkey) AS n FROM lineitem "
        "WHERE l_quantity > (SELECT avg(l_quantity) FROM lineitem) GROUP BY 1",
        batches=4,
    )


def test_a_range_only_narrows() -> None:
    assert Range(1.0, 5.0).within(Range(2.0, 9.0)) == Range(2.0, 5.0)
    assert not Range().decides
    assert Range().holds(Range(-1e300, float("inf")))
    assert Range(1.0, 3.0).holds(Range(1.0, 2.0))
    assert not Range(1.0, 3.0).holds(Range(0.5, 2.0))
    assert not Range(1.0, 2.0).holds(Range(float("nan"), float("nan")))
