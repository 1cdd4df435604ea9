"""The kinds of plan over layouts: small frozen values, each with an explanation and a job of its own."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace

import pytest
from relaqs_engine.plans.aggregate import MergePlan, RowsPlan
from relaqs_engine.plans.composite import AroundPlan, RefinedPlan
from relaqs_engine.plans.explain import explain
from relaqs_engine.plans.plan import Mode, OnlinePlan, WholePlan

import relaqs
from relaqs.queries.composite import AroundQueryJob, RefinedQueryJob
from relaqs.queries.folded import MergeableQueryJob, RowsQueryJob
from relaqs.queries.jobs import Asked, WholeQueryJob
from relaqs.queries.start import query_job
from tests.engine.world import World

MOST_FIELDS = 16

ONE_OF_EACH = [
    ("SELECT sum(l_tax) AS t FROM lineitem", MergePlan, MergeableQueryJob, Mode.MERGEABLE),
    ("SELECT l_tax FROM lineitem WHERE l_tax > 0.07", RowsPlan, RowsQueryJob, Mode.MERGEABLE),
    (
        "SELECT l_tax, sum(count(*)) OVER () AS n FROM lineitem GROUP BY 1",
        AroundPlan,
        AroundQueryJob,
        Mode.MERGEABLE,
    ),
    (
        "SELECT count(*) AS n FROM lineitem WHERE l_tax > (SELECT avg(l_tax) FROM lineitem)",
        RefinedPlan,
        RefinedQueryJob,
        Mode.REFINED,
    ),
    ("SELECT sum(l_tax) OVER () AS t FROM lineitem", WholePlan, WholeQueryJob, Mode.EXACT),
]


@pytest.mark.parametrize(("sql", "kind", "job", "mode"), ONE_OF_EACH)
def test_each_kind_has_its_job_and_its_explanation(
    tpch: World, sql: str, kind: type[OnlinePlan], job: type, mode: Mode
) -> None:
    plan = tpch.plan(sql)
    assert type(plan) is kind
    assert isinstance(plan, relaqs.OnlinePlan)
    assert plan.mode is mode
    assert explain(plan).startswith(f"mode: {mode.value}\nwhy: {plan.reasons[0]}\n")
    started = query_job(
        "test",
        plan,
        tpch.catalog,
        Asked(tpch.config),
        state_cursor=tpch.states.cursor(),
        exact_config=tpch.config,
    )
    assert type(started) is job


@pytest.mark.parametrize("kind", [each[1] for each in ONE_OF_EACH])
def test_no_plan_has_more_fields_than_a_reader_holds(kind: type[OnlinePlan]) -> None:
    assert len(fields(kind)) <= MOST_FIELDS
    assert "__dict__" not in dir(kind)


@pytest.mark.parametrize("sql", [each[0] for each in ONE_OF_EACH])
def test_plans_are_values(tpch: World, sql: str) -> None:
    plan = tpch.plan(sql)
    assert plan == tpch.plan(sql)
    assert hash(plan) == hash(tpch.plan(sql))
    assert replace(plan, sql="") != plan
    with pytest.raises(FrozenInstanceError):
        plan.sql = ""  # type: ignore[misc]


def test_what_is_no_kind_of_plan_is_named(tpch: World) -> None:
    head = OnlinePlan(sql="SELECT 1", outputs=(), reasons=())
    with pytest.raises(TypeError, match="OnlinePlan is no kind of plan that has an explanation"):
        explain(head)
    with pytest.raises(TypeError, match="OnlinePlan is no kind of plan that has a job"):
        query_job(
            "test",
            head,
            tpch.catalog,
            Asked(tpch.config),
            state_cursor=tpch.states.cursor(),
            exact_config=tpch.config,
        )
