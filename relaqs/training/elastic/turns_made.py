"""What a gang has reached by its turns: the steps, each once, and the state that its driver keeps."""

from __future__ import annotations

import time
from collections.abc import Sequence

from relaqs_engine.errors import ClusterError

from relaqs.training.elastic.course import TrainingCourse
from relaqs.training.elastic.membership import Membership
from relaqs.training.elastic.rank import EndOfPass, Restart, StepsMade, TurnResult
from relaqs.training.elastic.step_log import Rescale, StepLog

LOSSES_MOST = 10  # of all ranks, without a step between. Then it is the job that ends its workers


class TurnsMade:
    """Takes turns in. Not thread-safe, but for `steps` and `rescales`, which may be read.

    Args:
        start: where the first turn begins, where that is not at the beginning.
        by_passes: whether the state after each pass is kept for somebody who asks for it.

    Attributes:
        steps: all that were made.
        rescales: the changes that were carried out.
        reached: the steps that the ranks of the present gang have done; 0 where these are lost.
        passes: how many are over.
        kept: the last course that the driver has, pickled. None: the first one.
        kept_step, kept_passes: how many steps and passes were done before it.
        kept_seconds: when it came, on the monotonic clock.
        passed: passes that are over, with the pickled course after each, and not told of yet.
    """

    def __init__(self, start: TrainingCourse | None, *, by_passes: bool) -> None:
        first_step, passes = (0, 0) if start is None else (start.step, start.passes)
        self.steps = StepLog(first_step)
        self.rescales: list[Rescale] = []
        self.reached = 0
        self.passes = self.kept_passes = passes
        self.kept: bytes | None = None
        self.kept_step = first_step
        self.kept_seconds = time.monotonic()
        self.passed: list[tuple[int, bytes]] = []
        self._by_passes = by_passes
        self._losses = 0  # of all ranks, since the last step
        self._noted_generation = -1

    @property
    def step(self) -> int:
        """How many steps are done."""
        return self.steps.end

    def take(self, membership: Membership, told: Sequence[TurnResult]) -> list[TurnResult]:
        """Take a turn in, and return what counts of it.

        What does not follow on what was made is left out: what came before it was lost with all ranks.
        """
        results = [each for each in told if each.made is None or each.made.first_step <= self.step]
        made = max((each.made for each in results if each.made), key=lambda made: made.end, default=None)
        if made is not None:
            self._losses = 0 if made.end > self.step else self._losses
            self.steps.note(made, membership.size)
        self.reached = max((each.step for each in results), default=self.reached)
        self.passes = max((self.passes, *(each.passes for each in results)))
        for each in results:
            for end in each.ends:
                self._pass_over(end)
            if each.kept is not None and self._follows(each.passes, ahead=0):
                self._keep(each.kept, each.step, each.passes)
        if made:
            self._note_rescale(membership, made, results)
        return results

    def restart(self, *, knows: bool) -> Restart | None:
        """Return where to begin, as long as no rank of the present gang has done what was done before.

        knows: whether a rank has a state.
        """
        if knows and self.reached >= self.step:
            return None
        return Restart(None if knows else self.kept, self.kept_step, self.steps.rows_since(self.kept_step))

    def note_all_lost(self, why: BaseException) -> ClusterError | None:
        """Note that all ranks are lost. Return what to say where that happens again and again."""
        self._losses += 1
        if self._losses < LOSSES_MOST:
            return None
        error = ClusterError(
            f"all ranks of the job were lost {self._losses} times in a row at step {self.step}, the last "
            f"time by {type(why).__name__}: {why}; see the workers' logs: a rank may need more memory than "
            "they have, or a file that they do not see"
        )
        error.__cause__ = why
        return error

    def _pass_over(self, end: EndOfPass) -> None:
        """Take in the end of a pass. Several ranks may tell of one."""
        if end.passes <= self.kept_passes or not self._follows(end.passes, ahead=1):
            return
        if self._by_passes:
            self.passed.append((end.passes, end.course))
        self._keep(end.course, end.step, end.passes)

    def _follows(self, passes: int, *, ahead: int) -> bool:
        """Return whether a state may be kept: where each pass is told of, none is passed over.

        The end of one may be lost with the rank that told of it. The others then tell of it once more.
        """
        return not self._by_passes or passes == self.kept_passes + ahead

    def _keep(self, course: bytes, step: int, passes: int) -> None:
        self.kept, self.kept_step, self.kept_seconds = course, step, time.monotonic()
        self.kept_passes = passes

    def _note_rescale(self, membership: Membership, made: StepsMade, results: Sequence[TurnResult]) -> None:
        if self._noted_generation != membership.generation:
            self._noted_generation = membership.generation
            pauses = [each.pause_seconds for each in results if each.pause_seconds is not None]
            rows = int(made.batch_rows[0])
            self.rescales.append(Rescale(made.first_step, membership.size, rows, max(pauses, default=None)))
