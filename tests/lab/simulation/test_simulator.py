"""Simulated clusters: what must hold whoever shares them out, and what each policy is there for."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from relaqs_lab.records.schedule_run import RunSeries
from relaqs_lab.records.trace import Decisions, Outcome, Trace
from relaqs_lab.simulation import (
    Options,
    poisson_arrivals,
    query_trace,
    simulate,
    synthetic_workload,
    training_trace,
    workload_of,
)
from relaqs_lab.simulation.workload import Workload

from relaqs.policies import Fair, Fifo, Index
from relaqs.sharing.view import Kind, Plan, Policy, View

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

CORES = 16.0
EPOCH = Options(epoch_seconds=2.0)


def trace(errors: list[float], core_seconds: float = 10.0, kind: Kind = Kind.QUERY) -> Trace:
    """A job whose steps cost the same and leave these errors."""
    steps = len(errors)
    return Trace(
        name="plain",
        kind=kind,
        work_done=np.arange(1, steps + 1) / steps,
        quality=np.array(errors),
        true_error=np.array(errors),
        core_seconds=np.full(steps, core_seconds),
        progress=np.linspace(1, 0, steps),
    )


def mixed(seed: int, count: int = 10) -> Workload:
    random = np.random.default_rng(seed)
    arrivals = poisson_arrivals(random, count, 5.0)
    return synthetic_workload(random, arrivals, core_seconds=200.0, training_share=0.5)


@pytest.mark.parametrize("policy", [Fair(), Fifo(), Index()], ids=lambda each: each.name)
@pytest.mark.parametrize("reacts", [True, False])
def test_every_job_ends_and_its_steps_end_in_order(policy: Policy, reacts: bool) -> None:
    outcome = simulate(mixed(1), policy, CORES, replace(EPOCH, reacts_at_once=reacts)).outcome
    assert np.isfinite(outcome.completion_seconds).all()
    for row, index in zip(outcome.step_seconds, outcome.trace, strict=True):
        times = row[: outcome.traces.steps[index]]
        assert (np.diff(times) >= 0).all()
    assert (outcome.step_seconds[:, 0] >= outcome.arrival_seconds).all()


def test_no_core_idles_while_a_job_waits() -> None:
    workload = mixed(2)
    outcome = simulate(workload, Index(), CORES, EPOCH).outcome
    table = outcome.decisions.table
    assert table[:, 3:].sum(axis=1) == pytest.approx(CORES)
    assert (table[:, 1] * table[:, 3:].sum(axis=1)).sum() == pytest.approx(workload.core_seconds)


def test_one_seed_one_history_and_another_seed_another() -> None:
    first, again, other = (simulate(mixed(seed), Index(), CORES, EPOCH).outcome for seed in (3, 3, 4))
    assert np.array_equal(first.step_seconds, again.step_seconds, equal_nan=True)
    assert not np.array_equal(first.step_seconds, other.step_seconds, equal_nan=True)


def test_a_job_alone_takes_its_core_seconds_by_its_cores() -> None:
    job = workload_of([trace([1.0, 0.5, 0.0])], np.array([7.0]))
    outcome = simulate(job, Index(), CORES, EPOCH).outcome
    assert outcome.step_seconds[0] == pytest.approx(7.0 + np.array([10, 20, 30]) / CORES)
    capped = workload_of([trace([1.0, 0.5, 0.0])], np.array([7.0]), cores_most=2.0)
    assert simulate(capped, Index(), CORES, EPOCH).outcome.completion_seconds == pytest.approx([15.0])


def test_a_plan_waits_for_an_arrival_only_where_epochs_alone_count() -> None:
    jobs = workload_of([trace([0.0], 32.0), trace([0.0], 8.0)], np.array([0.0, 0.5]))
    at_once = simulate(jobs, Fair(), CORES, EPOCH).outcome
    assert at_once.completion_seconds == pytest.approx([2.5, 1.0])  # 8 s·core alone, 1 s shared, alone
    waiting = simulate(jobs, Fair(), CORES, replace(EPOCH, reacts_at_once=False)).outcome
    assert waiting.completion_seconds == pytest.approx([2.0, 2.0])


def test_what_is_not_over_by_the_end_has_no_time() -> None:
    jobs = workload_of([trace([1.0, 0.0], 16.0)] * 2, np.array([0.0, 50.0]))
    outcome = simulate(jobs, Fair(), CORES, replace(EPOCH, until_seconds=1.5)).outcome
    assert outcome.end_seconds == 1.5
    assert outcome.first_seconds == pytest.approx([1.0, np.nan], nan_ok=True)
    assert np.isnan(outcome.completion_seconds).all()
    assert outcome.error_seconds() == pytest.approx([1.5, 0.0])


def test_errors_fall_sooner_under_the_index_and_a_late_job_waits_under_fifo() -> None:
    integrals: dict[str, float] = {}
    for policy in (Index(), Fair(), Fifo()):
        runs = [simulate(mixed(seed), policy, CORES, EPOCH).outcome for seed in (5, 6, 7)]
        integrals[policy.name] = float(np.mean([run.error_seconds().mean() for run in runs]))
    assert integrals["index"] < 0.9 * integrals["fair"] < 0.9 * integrals["fifo"]


def test_a_cluster_without_cores_is_refused() -> None:
    with pytest.raises(ValueError, match="no cores"):
        simulate(mixed(1), Fair(), 0.0)


@dataclass(frozen=True)
class StopsAfter:
    """Shares evenly, and stops the first job once it has reported so many steps."""

    steps: int
    name: str = "stops after"

    def plan(self, view: View) -> Plan:
        jobs = view.jobs
        done = [id for id, count in zip(jobs.ids, jobs.count, strict=True) if count >= self.steps]
        return replace(Fair().plan(view), stops=tuple(id for id in done if id == "job 000000"))


def test_a_job_that_a_plan_stops_works_no_more_and_the_others_have_its_cores() -> None:
    jobs = workload_of([trace([0.5, 0.25, 0.0]), trace([0.5, 0.25, 0.0])], np.zeros(2))
    outcome = simulate(jobs, StopsAfter(1), CORES, EPOCH).outcome
    fair = simulate(jobs, Fair(), CORES, EPOCH).outcome
    assert np.isfinite(outcome.step_seconds).tolist() == [[True, False, False], [True, True, True]]
    assert outcome.completion_seconds[1] < fair.completion_seconds[1]
    alone = workload_of([trace([0.5, 0.25, 0.0])], np.zeros(1))
    stopped = simulate(alone, StopsAfter(1), CORES, EPOCH).outcome
    assert np.isfinite(stopped.step_seconds).tolist() == [[True, False, False]]


def outcome_of(errors: list[float], times: list[float]) -> Outcome:
    """One job that arrives at 10 and has these errors from these times on."""
    run = simulate(workload_of([trace(errors)], np.array([10.0])), Fair(), CORES, EPOCH).outcome
    return replace(run, step_seconds=np.array([times]), end_seconds=times[-1])


def test_a_reduction_counts_from_when_it_lasts() -> None:
    outcome = outcome_of([0.8, 0.05, 0.4, 0.08, 0.0], [11, 12, 13, 14, 15])
    # Relative to the largest, 0.8: 1, 0.06, 0.5, 0.1, 0. A chance hit at 12 is lost again at 13.
    assert outcome.seconds_to(np.array([0.5, 0.9, 1.0])).tolist() == [[2.0, 4.0, 5.0]]


def test_errors_over_time() -> None:
    outcome = outcome_of([0.8, 0.4, 0.0], [11, 13, 16])
    assert outcome.error_seconds() == pytest.approx([1 * 1 + 2 * 1 + 3 * 0.5])
    errors, progress = outcome.over_time(np.array([9.0, 10.0, 11.5, 13.0, 16.0]))
    assert errors == pytest.approx([np.nan, 1.0, 1.0, 0.5, 0.0], nan_ok=True)
    assert progress == pytest.approx([np.nan, 1.0, 1.0, 0.5, 0.0], nan_ok=True)


def test_a_run_that_nobody_looked_into_has_no_shares() -> None:
    outcome = replace(outcome_of([0.8, 0.0], [11, 12]), decisions=Decisions())
    series = RunSeries.of(outcome, 2.0)
    assert np.isnan(series.used_share).all()
    assert np.isnan(series.third_shares).all()
    assert series.mean_error[-1] == 0.0


def test_sampling_errors_follow_theory() -> None:
    """Over many traces the mean square of the error is σ²·(N−i)/(iN).

    σ is drawn anew for each, so that only ratios tell: to that at i = 1 they are (N−i)/(i(N−1)). Half-widths
    are the standard error times 1.96, within 5 %, in every trace.
    """
    random = np.random.default_rng(8)
    traces = [query_trace(random, 100.0, steps=20) for _ in range(400)]
    i = np.arange(1, 21)
    theory = (20 - i) / (i * 19)
    errors = np.array([each.true_error / each.quality[0] for each in traces])
    measured = errors.mean(axis=0) / errors.mean(axis=0)[0]
    # A mean of 400 absolute values of at least one normal cell: relative standard error below 4 %.
    assert measured[:-1] == pytest.approx(np.sqrt(theory[:-1]), rel=0.16)
    for each in traces:
        widths = each.quality / each.quality[0]
        assert widths[:-1] == pytest.approx(np.sqrt(theory[:-1]), rel=0.11)
        assert each.true_error[-1] == each.quality[-1] == 0.0


def test_training_losses_fall_to_their_end() -> None:
    random = np.random.default_rng(9)
    traces = [training_trace(random, 60.0) for _ in range(20)]
    assert {each.name for each in traces} == {"sublinear training", "linear training"}
    for each in traces:
        assert (np.diff(each.quality) < 0).all()
        assert each.normalised_error[0] == 1.0
        assert each.normalised_error[-1] == 0.0


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("core_seconds", [1.0, 0.0], "without a cost"),
        ("work_done", [0.5, 0.5], "does not rise"),
        ("true_error", [1.0, np.nan], "not a number"),
        ("quality", [1.0], "lengths"),
    ],
)
def test_broken_traces_are_refused(column: str, values: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(trace([1.0, 0.0]), **{column: np.array(values)})
