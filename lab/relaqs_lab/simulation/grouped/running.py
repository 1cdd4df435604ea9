"""A group while it runs: its machines, who is there, and how far its iterations are from the model's."""

from __future__ import annotations

from dataclasses import dataclass, field

from relaqs_lab.groups.plan import TurnTaking
from relaqs_lab.simulation.grouped.queries import QueriesBeside
from relaqs_lab.simulation.grouped.turns import IterationSeconds, Sharing, sharing

_LEAST_ITERATIONS = 3  # of each job between two changes of a group, for them to be compared with the model


@dataclass(slots=True, eq=False)
class RunningGroup:
    """Some machines and the jobs that share them.

    Attributes:
        number: of the group, in the order in which groups were made.
        machines: how many it has, once it is open.
        jobs: who is meant to be here.
        present: who takes its machines: runs, is loaded or is saved.
        is_open: it has its machines. Before that it waits for them.
        is_closing: it gives its machines back when the last one has left.
        queries: that want its cores, too.
        version: counts changes of what happens next.
        errors: of the model, as in `GroupedOutcome.model_errors`.
    """

    number: int
    machines: int
    turns: TurnTaking
    jobs: list[int] = field(default_factory=list)
    present: set[int] = field(default_factory=set)
    is_open: bool = False
    is_closing: bool = False
    queries: QueriesBeside | None = None
    version: int = 0
    errors: list[float] = field(default_factory=list)
    _lanes: Sharing | None = None
    _needs: dict[int, IterationSeconds] = field(default_factory=dict)
    _ends: dict[int, list[float]] = field(default_factory=dict)

    @property
    def lanes(self) -> Sharing:
        if self._lanes is None:
            self._lanes = sharing(self.turns, self.queries)
        return self._lanes

    def begin(
        self, job: int, needs: IterationSeconds, planned: IterationSeconds, now: float, after_seconds: float
    ) -> None:
        """Let a job begin an iteration that needs so much, where it is planned to need `planned`."""
        self.lanes.begin(job, needs, now, after_seconds)
        if self._needs.get(job) != planned:
            self._compare()
            self._needs[job] = planned
        self.version += 1

    def leave(self, job: int, now: float) -> None:
        self.lanes.leave(job, now)
        self._compare()
        self._needs.pop(job, None)
        self.version += 1

    def note_end(self, job: int, now: float) -> None:
        """Note that a job has ended an iteration."""
        self._ends.setdefault(job, []).append(now)

    def predicted_seconds(self) -> float:
        """Return T_g of who runs here by equation 1, with the disk as a third lane."""
        needs = list(self._needs.values())
        lanes = [
            sum(each.comp for each in needs),
            sum(each.pull + each.push for each in needs),
            sum(each.reload for each in needs),
        ]
        return max(*lanes, max(each.alone for each in needs))

    def _compare(self) -> None:
        """Compare the longest mean iteration since the last change with the model's, and begin anew."""
        ends = self._ends
        self._ends = {}
        if not self._needs or set(ends) != set(self._needs):
            return
        if any(len(times) <= _LEAST_ITERATIONS for times in ends.values()):
            return
        measured = max((times[-1] - times[0]) / (len(times) - 1) for times in ends.values())
        self.errors.append(abs(measured - self.predicted_seconds()) / measured)
