"""Cases of slot policies, the 50 jobs of Table 2, and the records that they leave."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from relaqs_lab.records import RecordFile
from relaqs_lab.records.comparison import by_setting, policy_rows
from relaqs_lab.records.simulated_runs import GANG_MEASURES, GangRun, relative
from relaqs_lab.records.store import json_value
from relaqs_lab.simulation.machines.faults import Faults
from relaqs_lab.simulation.machines.gang_study import GangCase, KnownPasses, Table2, run_gang_case
from relaqs_lab.simulation.machines.machine_simulator import Timing
from relaqs_lab.simulation.machines.table2 import table2_workload

from relaqs.sharing.gangs import Gang, Gangs


def ran(policy: str, seed: int = 0, **more: object) -> GangRun:
    return run_gang_case(dataclasses.replace(GangCase(policy, seed, Table2()), **more), {}, lambda: 0.0)


def test_table_2_has_the_papers_jobs() -> None:
    jobs = table2_workload(seed=3).jobs
    by_data = Counter(job.trains.name.partition(" on ")[2] for job in jobs)
    assert by_data == {"ImageNet": 24, "CIFAR10": 15, "COLA": 4, "MRPC": 1, "SST-2": 6}
    assert [job.name for job in jobs] == [job.name for job in table2_workload(seed=3).jobs]
    assert [job.name for job in jobs] != [job.name for job in table2_workload(seed=4).jobs]


def test_arrivals_do_not_change_what_the_jobs_are() -> None:
    often, seldom = (table2_workload(0, arrival_seconds=each).jobs for each in (1.0, 100.0))
    assert [(a.name, a.slots_asked, a.trains.convergence.stages) for a in often] == [
        (b.name, b.slots_asked, b.trains.convergence.stages) for b in seldom
    ]
    assert seldom[-1].arrival_seconds == pytest.approx(100 * often[-1].arrival_seconds)


def test_jobs_of_a_spike_come_at_once_and_the_others_as_ever() -> None:
    calm, spike = (
        np.array([job.arrival_seconds for job in table2_workload(0, spike_jobs=jobs).jobs])
        for jobs in (0, 20)
    )
    assert (spike[15:35] == calm[15]).all()
    assert (spike[:15] == calm[:15]).all()
    assert (spike[35:] == calm[35:]).all()


def test_known_passes_are_off_by_as_much_as_is_asked_for() -> None:
    """Logarithms of 2,000 factors: their mean and their spread are within 4 standard errors."""
    rows = [Gang(f"job {i}", pass_rows=10.0, rows_left=200.0) for i in range(2000)]
    gangs, nothing = Gangs.of(rows, nodes=1), np.empty((0, 6))
    assert (KnownPasses()(gangs, nothing) == 20.0).all()
    logs = np.log(KnownPasses(error=0.5, seed=3)(gangs, nothing) / 20.0)
    assert abs(logs.mean()) < 4 * 0.5 / np.sqrt(2000)
    assert abs(logs.std() - 0.5) < 4 * 0.5 / np.sqrt(2 * 2000)


def test_a_predictor_that_knows_is_told_the_rows_that_are_left() -> None:
    known, guessed = (
        ran("completion_rate", timing=Timing(60.0, until_seconds=300.0), parameters=parameters)
        for parameters in ((("predictor", KnownPasses()),), ())
    )
    assert known.policy == "completion_rate (predictor=KnownPasses(error=0.0, seed=0))"
    assert known.jobs.slot_seconds.tolist() != guessed.jobs.slot_seconds.tolist()


def test_a_fixed_batch_is_at_most_what_was_asked_for() -> None:
    jobs = table2_workload(0, is_elastic=False).jobs
    assert all(job.trains.rows_most == job.rows_asked for job in jobs)


def test_tiresias_takes_what_the_workload_was_calibrated_to() -> None:
    """The paper's 343 s of execution and 107 s of queuing, within four standard errors of 12 seeds."""
    runs = [ran("tiresias", seed, timing=Timing(30.0, True, 20.0)) for seed in range(12)]
    for measure, paper in (("executed_seconds", 343.0), ("queuing_seconds", 107.0)):
        figure = policy_rows(runs, GANG_MEASURES)[0].figures[measure]
        assert abs(figure.mean - paper) < 4 * figure.standard_error


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    run, file = ran("equal_slots", timing=Timing(60.0, until_seconds=200.0)), RecordFile(tmp_path / "gangs")
    file.append(GangRun.kind_of_record, run.as_record())
    (back,) = file.read(GangRun.kind_of_record, GangRun.of_record)
    assert back.key == run.key
    assert np.isnan(back.jobs.completion_seconds).any()
    np.testing.assert_allclose(back.jobs.slot_seconds, run.jobs.slot_seconds)
    assert run.slots is not None
    assert back.slots is not None
    np.testing.assert_allclose(back.slots.held, run.slots.held)


def test_a_record_without_slots_over_time_can_be_read() -> None:
    record = ran("equal_slots", timing=Timing(60.0, until_seconds=200.0)).as_record()
    old = {name: value for name, value in record.items() if name not in ("slots", "lost_share")}
    back = GangRun.of_record(json.loads(json.dumps(json_value(old))))
    assert back.slots is None
    assert back.lost_share == 0.0


def test_slots_over_time_add_up_to_what_the_jobs_held() -> None:
    run = ran("sia", timing=Timing(60.0, until_seconds=500.0))
    assert run.slots is not None
    spans = np.diff(run.slots.until_seconds, prepend=0.0)
    assert (run.slots.held * spans).sum() == pytest.approx(run.jobs.slot_seconds.sum())


def test_faults_are_those_of_the_cases_seed() -> None:
    faults = Faults(failures_per_hour=30.0)
    one, other, again = (ran("equal_slots", seed, faults=faults) for seed in (0, 1, 0))
    assert one.workload.endswith(", a node fails 30 times an hour, for 120 s, states saved every 10 s")
    assert one.lost_share == again.lost_share > 0
    assert one.lost_share != other.lost_share


def test_a_case_has_the_key_of_its_record() -> None:
    parameters, mix = (("threshold_slot_seconds", 500.0),), Table2(arrival_seconds=30.0)
    case = GangCase("tiresias", 1, mix, nodes=8, node_slots=2, parameters=parameters)
    run = run_gang_case(case, {}, lambda: 0.0)
    assert repr(run.key) == repr(case.key)
    assert run.policy == "tiresias (threshold_slot_seconds=500.0)"


def test_settings_are_apart_and_relative_numbers_are_of_equal_seeds() -> None:
    few, many = [ran("equal_slots", seed, nodes=8) for seed in (0, 1)], [ran("equal_slots", 0)]
    assert by_setting([*few, *many]) == [few, many]
    assert relative(many, few).mean == pytest.approx(
        many[0].jobs.completion_seconds.mean() / few[0].jobs.completion_seconds.mean()
    )
