"""All runs of a session whose models are cut: a plan for one of them sees the parts of all.

A plan is made when a part has no place, and when a run has ended or a worker has come, since then there is
room. It may move parts of other runs, too, if these have the same policy. Each run carries its own moves out,
between two turns.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from relaqs.parts.plan import PlacedPolicy
from relaqs.training.elastic.gang_executor import LeasesSlots
from relaqs.training.parted.cut import ModelCut, Part
from relaqs.training.parted.placing import PartedRunView, PartSizes, placed_by
from relaqs.training.parted.run_facts import RunHistory


@dataclass(slots=True, eq=False)
class RunInParts:
    """A run, for those that plan.

    Attributes:
        policy: of this run; it also moves parts of runs that have an equal one.
        history: what it has told so far.
        cut, sizes: its parts.
        moved: is called with the new places of some parts. It must not wait.
        fixed: the parts that the user has placed, which no policy moves.
        present: where its parts are to be.
        is_due: whether a new plan may be better, since another run has ended.
    """

    policy: PlacedPolicy
    history: RunHistory
    cut: ModelCut
    sizes: PartSizes
    moved: Callable[[Mapping[Part, str]], None]
    fixed: frozenset[Part] = frozenset()
    present: Mapping[Part, str] = field(default_factory=dict)
    is_due: bool = False

    def as_placed(self) -> PartedRunView:
        """Return what a policy sees of it."""
        return PartedRunView(self.history.facts(), self.cut, self.sizes, self.present)

    def take(self, places: Mapping[Part, str]) -> dict[Part, str]:
        """Be where a plan says, but for fixed parts. Return what has changed."""
        changed = {
            part: slot
            for part, slot in places.items()
            if part not in self.fixed and self.present.get(part) != slot
        }
        self.present = {**self.present, **changed}
        self.is_due = False
        return changed


class PlacedRuns:
    """The runs in parts of one session on a cluster. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: list[RunInParts] = []

    def stand(self, run: RunInParts, present: Mapping[Part, str], fixed: frozenset[Part]) -> None:
        """Note where the parts of a run are."""
        with self._lock:
            self._note(run, present, fixed)

    def placed(
        self, run: RunInParts, present: Mapping[Part, str], fixed: frozenset[Part], slots: Sequence[str]
    ) -> Mapping[Part, str]:
        """Return the slot of each part of a run, by its policy, and tell other runs of their moves.

        Args:
            present: where parts are now; the others wait.
            fixed: those of them that the user has placed.
            slots: those of the cluster.

        Raises:
            ClusterError: the policy has no place for a part.
        """
        with self._lock:
            self._note(run, present, fixed)
            runs = [run, *(each for each in self._runs if each is not run)]
            places = placed_by(run.policy, [each.as_placed() for each in runs], slots, time.monotonic())
            run.take(places[0])
            for other, own in zip(runs[1:], places[1:], strict=True):
                if other.policy == run.policy and (changed := other.take(own)):
                    other.moved(changed)
            return run.present

    def leave(self, run: RunInParts) -> None:
        """Note that a run is over. The others may have its room."""
        with self._lock:
            if run in self._runs:
                self._runs.remove(run)
                for each in self._runs:
                    each.is_due = True

    def _note(self, run: RunInParts, present: Mapping[Part, str], fixed: frozenset[Part]) -> None:
        if run not in self._runs:
            self._runs.append(run)
        run.present, run.fixed = dict(present), fixed


_OF_CLUSTER: WeakKeyDictionary[LeasesSlots, PlacedRuns] = WeakKeyDictionary()
_LOCK = threading.Lock()


def placed_runs_of(cluster: LeasesSlots) -> PlacedRuns:
    """Return the runs in parts of a session, by its connection to the cluster."""
    with _LOCK:
        return _OF_CLUSTER.setdefault(cluster, PlacedRuns())
