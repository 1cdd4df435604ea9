"""Jobs whose steps have few tasks: what they can use, what waits for folds, and what goes to others."""

from __future__ import annotations

import numpy as np
import pytest
from relaqs_lab.records.query_run import Steps
from relaqs_lab.records.trace import Outcome, Pipeline, Trace
from relaqs_lab.simulation import Options, simulate, workload_of

from relaqs.policies import Fair, Fifo
from relaqs.sharing.view import Kind

EPOCH = Options(epoch_seconds=100.0)


def job(
    tasks: list[float],
    costs: list[float],
    *,
    fold_seconds: float = 0.0,
    start_seconds: float = 0.0,
    kind: Kind = Kind.QUERY,
) -> Trace:
    """A job whose steps have so many tasks and cost so many core-seconds."""
    steps = len(tasks)
    errors = np.linspace(1.0, 0.0, steps)
    pipeline = Pipeline(np.array(tasks), np.full(steps, fold_seconds), start_seconds)
    work = np.arange(1, steps + 1) / steps
    return Trace("few", kind, work, errors, errors, np.array(costs), errors, pipeline)


def run(*jobs: Trace, cores: float, options: Options = EPOCH, policy: Fair | Fifo | None = None) -> Outcome:
    workload = workload_of(jobs, np.zeros(len(jobs)))
    return simulate(workload, policy or Fair(), cores, options).outcome


def test_a_step_of_one_task_takes_one_core_and_the_next_step_the_other() -> None:
    # Four cores: steps 0 to 3 run beside one another, and step 4 where step 0 leaves a core.
    outcome = run(job([1, 1, 1, 1, 1], [1.0, 2.0, 2.0, 3.0, 3.0]), cores=4)
    assert outcome.step_seconds[0] == pytest.approx([1.0, 2.0, 2.0, 3.0, 4.0])


def test_two_steps_are_in_flight_where_they_have_more_tasks_than_there_are_cores() -> None:
    # Step 0 has two of the three cores, step 1 the third: its 6 core-seconds begin with 2 of step 0's time.
    outcome = run(job([2, 3, 1], [4.0, 6.0, 1.0]), cores=3)
    assert outcome.step_seconds[0] == pytest.approx([2.0, 2.0 + 4 / 3, 2.0 + 4 / 3 + 1.0])


def test_a_fold_takes_time_and_no_core_and_planning_comes_first() -> None:
    outcome = run(job([1, 1], [1.0, 1.0], fold_seconds=0.25, start_seconds=0.5), cores=1)
    # One core: tasks from 0.5 to 1.5 and to 2.5; the first is folded while the second runs.
    assert outcome.step_seconds[0] == pytest.approx([1.75, 2.75])


def test_a_training_step_waits_for_the_result_of_the_last() -> None:
    outcome = run(job([1, 1], [1.0, 1.0], fold_seconds=0.25, kind=Kind.TRAINING), cores=4)
    assert outcome.step_seconds[0] == pytest.approx([1.25, 2.5])


@pytest.mark.parametrize("policy", [Fair(), Fifo()], ids=lambda each: each.name)
def test_what_a_job_has_no_tasks_for_goes_to_others(policy: Fair | Fifo) -> None:
    narrow, wide = job([1], [2.0]), job([8], [6.0])
    outcome = run(narrow, wide, cores=4, policy=policy)
    assert outcome.completion_seconds == pytest.approx([2.0, 2.0])
    held = outcome.decisions.table
    assert (held[:, 1] * held[:, 3:].sum(axis=1)).sum() == pytest.approx(8.0)


def test_epochs_alone_give_the_same_to_a_job_alone() -> None:
    alone = job([1, 2, 3, 1], [1.0, 3.0, 4.0, 1.0], fold_seconds=0.1)
    at_once = run(alone, cores=2)
    for epoch in (0.3, 7.0):
        waiting = run(alone, cores=2, options=Options(epoch, reacts_at_once=False))
        assert waiting.step_seconds == pytest.approx(at_once.step_seconds)


def test_larger_data_have_more_tasks() -> None:
    workload = workload_of([job([1], [1.0])], np.zeros(1), cost_scale=8.0)
    outcome = simulate(workload, Fair(), 4.0, EPOCH).outcome
    assert outcome.completion_seconds == pytest.approx([2.0])


def test_very_many_tasks_are_as_good_as_endless_ones() -> None:
    bound = job([1e6, 1e6], [10.0, 20.0])
    free = Trace(
        "free", Kind.QUERY, *([bound.work_done] + [bound.quality] * 2), bound.core_seconds, bound.progress
    )
    both = [run(each, free, cores=16).step_seconds for each in (bound, free)]
    assert both[0] == pytest.approx(both[1])


def recorded(**changed: list[float | None]) -> Steps:
    columns = ("work_done", "quality", "half_width", "true_error", "progress", "elapsed_seconds", "cells")
    content: dict[str, object] = {
        name: [0.5, 1.0] for name in (*columns, "certified", "held", "core_seconds")
    }
    return Steps.of_record({**content, **changed})


def test_older_records_cost_what_they_computed_and_bound_nothing() -> None:
    trace = recorded().trace("old", Kind.QUERY, other_core_seconds=3.0)
    assert trace.pipeline is None
    assert trace.core_seconds.tolist() == [2.0, 2.5]  # 0.5 and 1, and half of 3 each


def test_records_cost_what_their_tasks_held_cores_for() -> None:
    steps = recorded(
        tasks=[1, 2], held_seconds=[0.7, 1.5], queued_seconds=[0.1, 0.2], fold_seconds=[0.0, 0.3]
    )
    trace = steps.trace("new", Kind.QUERY, other_core_seconds=3.0)
    assert trace.core_seconds.tolist() == [0.7, 1.5]
    assert trace.pipeline is not None
    assert (trace.pipeline.start_seconds, trace.pipeline.tasks.tolist()) == (0.1, [1.0, 2.0])


@pytest.mark.parametrize(("tasks", "fold", "message"), [(0.0, 0.0, "no task"), (1.0, -1.0, "0 or more")])
def test_broken_pipelines_are_refused(tasks: float, fold: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Pipeline(np.array([tasks]), np.array([fold]), 0.0)
