"""Machines that fail, come back or are slow: times by hand, and what is conserved under every policy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from relaqs_lab.simulation.machines.faults import HOUR_SECONDS, Faults, FaultTimes
from relaqs_lab.simulation.machines.machine_simulator import GangOutcome, Timing, simulate_gangs
from relaqs_lab.simulation.machines.workloads import GangWorkload

from relaqs.policies.registry import SLOT_POLICIES, make_slot_policy
from relaqs.sharing.gangs import Nodes
from tests.lab.simulation.machines.test_gang_simulator import BOUND, workload

ROWS, ROWS_A_SECOND = 2000.0, 50.0  # of a job of `workload`, on one slot in batches of 10
EVENTS = Timing(math.inf, True, rescale_seconds=3.0)
OFTEN = Faults(failures_per_hour=60.0, repair_seconds=20.0, save_seconds=7.0)
SLOW_FOR_GOOD = Faults(slow_per_hour=1e9, slow_factor=3.0, slow_seconds=1e9)


def ran(
    policy: str, jobs: GangWorkload, nodes: Nodes, faults: Faults | None, timing: Timing = EVENTS
) -> GangOutcome:
    return simulate_gangs(jobs, make_slot_policy(policy), nodes, timing, faults=faults)


def test_failures_come_as_often_as_they_should() -> None:
    """A Poisson process: the count over 50 machines and 100 hours is within 4 √count of what is expected."""
    times = FaultTimes(Faults(failures_per_hour=1.0, repair_seconds=1e-3), nodes=50)
    changes = times.taken(100 * HOUR_SECONDS)
    failures = sum(change.is_alive is False for change in changes)
    assert abs(failures - 5000) < 4 * math.sqrt(5000)


def test_how_often_machines_fail_does_not_change_when_they_are_slow() -> None:
    calm, failing = (
        FaultTimes(Faults(failures_per_hour=rate, slow_per_hour=5.0), 3).taken(10 * HOUR_SECONDS)
        for rate in (0.0, 9.0)
    )
    assert calm == [change for change in failing if change.slow_factor is not None]
    assert len(failing) > len(calm) > 0


def test_one_job_on_a_machine_that_fails_by_hand() -> None:
    """It goes back to the last whole 7 s of work, or to its stage's end after 20 s. A pause is 3 s."""
    seconds, done, is_up = 0.0, 0.0, True
    works_from = 5.0 + 3.0
    times = FaultTimes(OFTEN, 1)
    while is_up is False or times.next_seconds < works_from + (40.0 - done):
        seconds = times.next_seconds
        [change] = times.taken(seconds)
        if change.is_alive:
            works_from, is_up = max(seconds, 5.0) + 3.0, True
            continue
        now = done + max(seconds - works_from, 0.0)
        since = max(done, 20.0) if now >= 20.0 else done
        done, is_up = since + 7.0 * math.floor((now - since) / 7.0), False
        if seconds < 5.0:
            done = 0.0
    assert seconds > 5.0  # or nothing was tried
    outcome = ran("tiresias", workload((5.0, 1, 10.0)), Nodes.equal(1, 1), OFTEN)
    assert outcome.end_seconds[0] == pytest.approx(works_from + 40.0 - done)
    worked = outcome.executed_seconds[0] - outcome.paused_seconds[0]
    assert outcome.rows_lost[0] > 0
    assert worked * ROWS_A_SECOND == pytest.approx(ROWS + outcome.rows_lost[0])


def test_a_job_with_ranks_elsewhere_loses_nothing() -> None:
    """Two machines never fail at the same time here: one of them always has the job's state."""
    faults = Faults(failures_per_hour=300.0, repair_seconds=0.01)
    outcome = ran("equal_slots", workload((0.0, 4, 40.0)), Nodes.equal(2, 2), faults)
    assert outcome.rescales[0] > 0
    assert outcome.rows_lost[0] == 0.0


@pytest.mark.parametrize("policy", SLOT_POLICIES)
@pytest.mark.parametrize("timing", [Timing(10.0, False, 2.0), EVENTS], ids=["rounds", "events"])
def test_every_policy_brings_all_jobs_to_their_end(policy: str, timing: Timing) -> None:
    """Each row counts once: what was lost is processed again, and nothing else is."""
    jobs = workload((0.0, 2, 40.0), (3.0, 4, 80.0), (4.0, 1, 10.0), (90.0, 2, 20.0), speed=BOUND)
    faults = Faults(failures_per_hour=90.0, repair_seconds=15.0, slow_per_hour=60.0, slow_seconds=20.0)
    outcome = ran(policy, jobs, Nodes.equal(2, 2), faults, timing)
    assert outcome.rows_done.tolist() == pytest.approx([ROWS] * 4)
    assert (outcome.rows_lost >= 0).all()
    assert (outcome.queuing_seconds >= -1e-9).all()
    assert 0 < outcome.used_share <= 1
    again = ran(policy, jobs, Nodes.equal(2, 2), faults, timing)
    assert again.end_seconds.tolist() == outcome.end_seconds.tolist()


def test_a_gang_waits_for_its_slow_machine() -> None:
    jobs, nodes = workload((5.0, 1, 10.0)), Nodes.equal(1, 1)
    assert ran("tiresias", jobs, nodes, SLOW_FOR_GOOD).completion_seconds[0] == pytest.approx(3.0 + 3 * 40.0)


def test_faults_that_never_come_change_nothing() -> None:
    jobs = workload((0.0, 2, 40.0), (3.0, 4, 80.0))
    calm, none = (ran("sia", jobs, Nodes.equal(2, 2), faults) for faults in (Faults(), None))
    assert calm.end_seconds.tolist() == none.end_seconds.tolist()
    assert calm.rows_lost.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"failures_per_hour": -1.0}, "failures_per_hour is -1.0; give a finite number, 0 or more"),
        ({"slow_per_hour": math.inf}, "slow_per_hour is inf"),
        ({"repair_seconds": 0.0}, "repair_seconds is 0.0; give a finite time above 0"),
        ({"slow_factor": 0.5}, "slow_factor is 0.5; give a finite number, 1 or more"),
    ],
)
def test_a_wrong_number_is_named(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Faults(**wrong)


def test_slots_over_time_add_up_to_what_the_jobs_held() -> None:
    outcome = ran("equal_slots", workload((0.0, 2, 40.0), (3.0, 4, 80.0)), Nodes.equal(2, 2), OFTEN)
    spans = np.diff(outcome.change_seconds)
    assert (outcome.held_slots[:-1] * spans).sum() == pytest.approx(outcome.slot_seconds.sum())
