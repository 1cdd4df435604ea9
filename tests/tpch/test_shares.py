"""Who held which cores in each span of a live run: the same as by asking every task about every span."""

from __future__ import annotations

import numpy as np
import pytest
from relaqs_bootstrap.arrays import FloatArray
from relaqs_lab.records.trace import Decisions, Outcome
from relaqs_lab.simulation import Options, synthetic_workload
from relaqs_lab.simulation.simulator import simulate
from relaqs_tpch.measuring import SPAN_SECONDS, Held, cores_in, decisions_of

from relaqs.policies import Fair

CORES = 4.0
STARTED_AT = 1234.5  # on a clock that began before the run


@pytest.mark.parametrize("seed", range(3))
def test_decisions_are_those_of_every_task_in_every_span(seed: int) -> None:
    random = np.random.default_rng(seed)
    workload = synthetic_workload(random, np.array([0.0, 0.4, 1.9, 7.0]), core_seconds=3.0)
    outcome = simulate(workload, Fair(), CORES, Options(0.5)).outcome
    held = [tasks_of(random, outcome, count) for count in (40, 25, 0, 60)]
    found, expected = decisions_of(outcome, held, STARTED_AT).table, by_asking_each(outcome, held).table
    assert len(expected) > 20
    assert set(expected[:, 2]) >= {1.0, 2.0}  # jobs at once
    assert (expected[:, 3:].sum(axis=1) > 1).any()
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def tasks_of(random: np.random.Generator, outcome: Outcome, count: int) -> list[Held]:
    """Tasks of one core or two, short and longer than a span, some beyond the end of the run."""
    return [
        Held(
            ended_at=STARTED_AT + random.uniform(0.0, outcome.end_seconds + 0.1),
            held_seconds=random.exponential(0.1),
            cores=int(random.integers(1, 3)),
        )
        for _ in range(count)
    ]


def by_asking_each(outcome: Outcome, held: list[list[Held]]) -> Decisions:
    decisions = Decisions()
    ends = outcome.arrival_seconds + outcome.completion_seconds
    for begin in np.arange(0.0, outcome.end_seconds, SPAN_SECONDS):
        end = min(begin + SPAN_SECONDS, outcome.end_seconds)
        present = np.flatnonzero((outcome.arrival_seconds < end) & (ends > begin))
        if len(present):
            cores = [sum(overlap(each, begin, end) for each in held[job]) / (end - begin) for job in present]
            decisions.add(begin, end - begin, errors_at(outcome, begin)[present], np.array(cores))
    return decisions


def overlap(task: Held, begin: float, end: float) -> float:
    ended = task.ended_at - STARTED_AT
    began = ended - task.held_seconds / task.cores
    return max(min(ended, end) - max(began, begin), 0.0) * task.cores


def errors_at(outcome: Outcome, at_seconds: float) -> FloatArray:
    done = (outcome.step_seconds <= at_seconds).sum(axis=1)
    newest = outcome.traces.error[outcome.trace, np.maximum(done - 1, 0)]
    return np.where(done > 0, newest, 1.0)


def test_a_task_on_two_cores_counts_for_both_while_it_runs() -> None:
    one, two = Held(ended_at=3.0, held_seconds=2.0, cores=1), Held(ended_at=2.0, held_seconds=1.0, cores=2)
    assert cores_in([one, two], np.array([0.0, 1.0, 2.0, 4.0])).tolist() == [0.0, 2.0, 0.5]
