"""The eighty jobs: what the paper lists of them, and what was calibrated."""

from __future__ import annotations

import numpy as np
import pytest
from relaqs_lab.simulation.grouped.grouped_workload import GroupedJob, harmony_jobs


def test_the_sizes_are_those_of_the_table() -> None:
    jobs = harmony_jobs(0)
    assert len({job.name for job in jobs}) == 80
    assert sum(job.input_bytes for job in jobs) == pytest.approx(10 * 608.5e9)
    assert sum(job.model_bytes for job in jobs) == pytest.approx(10 * 81.2e9)


def test_jobs_balance_on_about_fifteen_machines() -> None:
    """Of 100 machines 6.7 groups are then balanced, as in the paper. Over 20 seeds one deviation is 0.4."""
    jobs = [harmony_jobs(seed) for seed in range(20)]
    ratios = [sum(j.comp_machine_seconds for j in each) / sum(j.comm_seconds for j in each) for each in jobs]
    assert np.mean(ratios) == pytest.approx(15.0, abs=1.2)
    shares = [job.comp_share for each in jobs for job in each]
    assert (min(shares), max(shares)) == (pytest.approx(0.2, abs=0.01), pytest.approx(0.8, abs=0.01))


def test_the_same_seed_has_the_same_jobs_whenever_they_come() -> None:
    names = [job.name for job in harmony_jobs(1)]
    assert [job.name for job in harmony_jobs(1, arrivals="poisson")] == names
    assert [job.name for job in harmony_jobs(2)] != names


def test_sixty_jobs_compute_or_communicate_most() -> None:
    shares = sorted(job.comp_share for job in harmony_jobs(0))
    assert sorted(job.comp_share for job in harmony_jobs(0, mix="computing")) == shares[20:]
    assert sorted(job.comp_share for job in harmony_jobs(0, mix="communicating")) == shares[:60]


@pytest.mark.parametrize("arrivals", ["poisson", "bursts"])
def test_jobs_come_as_often_as_is_said(arrivals) -> None:
    """79 spaces of 480 s on average: over 60 seeds one deviation of the mean is at most 8 % with bursts."""
    last = [harmony_jobs(seed, arrivals=arrivals)[-1].arrival_seconds for seed in range(60)]
    assert np.mean(last) == pytest.approx(79 * 480.0, rel=0.24)
    times = [job.arrival_seconds for job in harmony_jobs(0, arrivals=arrivals)]
    assert times == sorted(times)
    assert (len(set(times)) < 40) is (arrivals == "bursts")


def test_a_job_without_work_is_refused() -> None:
    with pytest.raises(ValueError, match="a has 0 iterations"):
        GroupedJob("a", 0.0, 0, 1.0, 1.0)
