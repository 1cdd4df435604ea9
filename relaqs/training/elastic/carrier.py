"""An executor of one run that carries some of its work itself. All the rest goes to the cluster as it is."""

from __future__ import annotations

from relaqs.jobs.executor import Executor
from relaqs.jobs.job import ClusterStatus, StepReport


class Carrier:
    """What the executors of one run have in common. cluster: where everything runs."""

    def __init__(self, cluster: Executor) -> None:
        self._cluster = cluster

    @property
    def capacity(self) -> int:
        return self._cluster.capacity

    def report(self, job_id: str, report: StepReport) -> None:
        self._cluster.report(job_id, report)

    def set_weight(self, job_id: str, weight: float) -> None:
        self._cluster.set_weight(job_id, weight)

    def set_target(self, job_id: str, target: float | None) -> None:
        self._cluster.set_target(job_id, target)

    def set_waiting(self, job_id: str, is_waiting: bool) -> None:
        self._cluster.set_waiting(job_id, is_waiting)

    def status(self) -> ClusterStatus:
        return self._cluster.status()

    def close(self) -> None:
        """Do nothing: the cluster belongs to the session."""

    def describe(self) -> str:
        return self._cluster.describe()
