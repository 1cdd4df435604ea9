"""Gangs on simulated machines: times by hand, a golden run, and the traces of AdaptDL in small."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from relaqs_engine.errors import DataError
from relaqs_lab.simulation.machines.machine_simulator import GangOutcome, Timing, simulate_gangs
from relaqs_lab.simulation.machines.workloads import (
    Convergence,
    ElasticJob,
    FittedRates,
    GangWorkload,
    MeasuredRates,
    Trainable,
    read_workload,
)

from relaqs.policies.registry import SLOT_POLICIES, make_slot_policy
from relaqs.sharing.gangs import Nodes

FREE = (0.1, 0.01, 1e-9, 1e-9, 1e-9, 1e-9, 1.0)  # adding up costs nothing
BOUND = (0.1, 0.01, 0.05, 0.01, 0.2, 0.02, 1.5)


def trainable(speed: tuple[float, ...] = FREE, *, is_linear: bool = True, stages: int = 2) -> Trainable:
    noise = [200.0 * (stage + 1) for stage in range(stages)]
    return Trainable(
        "made up",
        pass_rows=1000.0,
        rates=FittedRates(np.array(speed)),
        convergence=Convergence.of_noise(10.0, 1000.0, noise, is_linear=is_linear),
        slot_rows_least=5.0,
        slot_rows_most=40.0,
        rows_most=80.0,
    )


def workload(*jobs: tuple[float, int, float], speed: tuple[float, ...] = FREE, **more: bool) -> GangWorkload:
    trains = trainable(speed, **more)
    rows = [ElasticJob(f"job {i}", trains, at, slots, batch) for i, (at, slots, batch) in enumerate(jobs)]
    return GangWorkload("made up", tuple(rows))


def ran(policy: str, jobs: GangWorkload, timing: Timing, nodes: Nodes | None = None) -> GangOutcome:
    return simulate_gangs(jobs, make_slot_policy(policy), nodes or Nodes.equal(2, 2), timing)


def test_one_job_by_hand() -> None:
    outcome = ran("tiresias", workload((5.0, 1, 10.0)), Timing(math.inf, True, rescale_seconds=3.0))
    assert outcome.completion_seconds[0] == pytest.approx(3.0 + 200 * 0.2)  # 200 steps of 10 rows
    assert outcome.queuing_seconds[0] == pytest.approx(0.0)
    assert outcome.paused_seconds[0] == pytest.approx(3.0)
    assert outcome.rows_done[0] == pytest.approx(2000.0)


def test_rounds_make_a_job_wait_for_the_next_one() -> None:
    outcome = ran("tiresias", workload((5.0, 1, 10.0)), Timing(60.0, rescale_seconds=0.0))
    assert outcome.start_seconds[0] == 60.0
    assert outcome.completion_seconds[0] == pytest.approx(55.0 + 40.0)
    assert outcome.queuing_seconds[0] == pytest.approx(55.0)


def test_the_second_gang_waits_until_the_first_has_ended() -> None:
    outcome = ran("tiresias", workload((0.0, 3, 30.0), (1.0, 2, 20.0)), Timing(math.inf, True, 0.0))
    assert outcome.start_seconds[1] == pytest.approx(outcome.end_seconds[0])
    assert outcome.rescales.tolist() == [0.0, 0.0]


def test_a_row_in_a_large_batch_counts_less() -> None:
    timing = Timing(math.inf, True, 0.0)
    linear = ran("tiresias", workload((0.0, 1, 40.0)), timing)
    noisy = ran("tiresias", workload((0.0, 1, 40.0), is_linear=False), timing)
    expected = 1000.0 * (240.0 / 210.0 + 440.0 / 410.0)
    assert linear.rows_done[0] == pytest.approx(2000.0)
    assert noisy.rows_done[0] == pytest.approx(expected)


@pytest.mark.parametrize("policy", SLOT_POLICIES)
@pytest.mark.parametrize(
    "timing", [Timing(10.0, False, 2.0), Timing(math.inf, True, 1.0)], ids=["rounds", "events"]
)
def test_every_job_ends_and_all_its_time_is_told(policy: str, timing: Timing) -> None:
    jobs = workload(
        (0.0, 2, 40.0), (3.0, 4, 80.0), (4.0, 1, 10.0), (90.0, 2, 20.0), speed=BOUND, is_linear=False
    )
    outcome = ran(policy, jobs, timing)
    assert np.isfinite(outcome.end_seconds).all()
    assert (outcome.queuing_seconds >= -1e-9).all()
    assert (outcome.paused_seconds <= outcome.executed_seconds).all()
    assert (outcome.rows_done >= 2000.0 - 1e-6).all()
    assert 0 < outcome.used_share <= 1
    again = ran(policy, jobs, timing)
    assert again.end_seconds.tolist() == outcome.end_seconds.tolist()


def test_no_slots_and_no_plans_are_refused() -> None:
    with pytest.raises(ValueError, match="no slots"):
        ran("equal_slots", workload((0.0, 1, 10.0)), Timing(), Nodes.equal(2, 0))
    with pytest.raises(ValueError, match="no plan would be made"):
        Timing(math.inf, at_events=False)


def adaptdl_folder(folder: Path) -> Path:
    """Write a folder as AdaptDL's, with one model on up to two nodes and a workload of two jobs."""
    (folder / "traces" / "bert").mkdir(parents=True)
    (folder / "workloads").mkdir()
    home = folder / "traces" / "bert"
    rows = "".join(f"{name},{rows},{0.1 * rows},0.0\n" for name in (1, 2, 11) for rows in (5, 20))
    (home / "placements.csv").write_text("placement,local_bsz,step_time,sync_time\n" + rows)
    (home / "scalability.csv").write_text(
        "num_nodes,num_replicas,local_bsz,step_time,sync_time\n4,8,5,1,0.5\n"
    )
    for batch in (10, 40):
        text = "progress,iteration,metric,grad_sqr,grad_var\n10,10,0.5,1.0,9.0\n20,20,0.9,1.0,9.0\n"
        (home / f"validation-{batch}.csv").write_text(text)
    jobs = "name,time,application,num_replicas,batch_size\nbert-0,10,bert,1,10\nbert-1,20,bert,2,40\n"
    (folder / "workloads" / "workload-1.csv").write_text(jobs)
    return folder


def test_a_small_folder_of_adaptdl_is_simulated(tmp_path: Path) -> None:
    jobs = read_workload(adaptdl_folder(tmp_path), "workloads/workload-1.csv")
    outcome = ran("tiresias", jobs, Timing(60.0, False, 30.0))
    # bert-0: 20 steps of 10 rows, 1 s each. bert-1: 200 rows of progress, each worth 100/130, 40 in 2 s.
    assert outcome.completion_seconds == pytest.approx([50 + 30 + 20, 40 + 30 + 200 * 1.3 / 20])


def test_a_folder_that_is_not_adaptdls_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="give the folder `simulator`"):
        read_workload(tmp_path, "workloads/workload-1.csv")
    folder = adaptdl_folder(tmp_path)
    (folder / "workloads" / "workload-1.csv").write_text(
        "name,time,application,num_replicas,batch_size\na,0,gpt,1,8\n"
    )
    with pytest.raises(DataError, match="no traces of 'gpt'"):
        read_workload(folder, "workloads/workload-1.csv")


def test_measured_steps_are_interpolated_between_rows_and_rotations() -> None:
    placements = np.array([[1, 10, 1.0, 0.0], [1, 20, 2.0, 0.0], [12, 10, 3.0, 1.0], [12, 20, 5.0, 1.0]])
    rates = MeasuredRates.of(placements, np.array([[4.0, 8.0, 10.0, 4.0, 2.0]]))
    assert rates.step_and_compute((1,), 15) == pytest.approx((1.5, 1.5))
    assert rates.step_and_compute((2, 1), 15) == pytest.approx((4.0, 3.0))
