"""Pacer: a loop of the user's own reports its losses, and takes turns with other work."""

from __future__ import annotations

from typing import Any, SupportsFloat

from relaqs.arguments import ArgumentError, check_loss
from relaqs.jobs.executor import Executor
from relaqs.jobs.runner import RunningJobs
from relaqs.pacing.paced_loop import TURN_SECONDS, PacedLoop, Reported, current_loop
from relaqs.sharing.view import Kind


class Pacer(PacedLoop):
    """A paced loop that reports losses, such as one of PyTorch's. `Session.pace` makes one.

    Other threads may iterate over it: each time round they get the newest report.

    >>> import duckdb, relaqs
    >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
    >>> db = relaqs.connect("data", threads=1)
    >>> with db.pace(priority=2.0) as pacer:
    ...     for step in range(1, 4):
    ...         goes_on = pacer.report(1 / step)
    >>> pacer.losses[:2]
    (1.0, 0.5)
    """

    def __init__(
        self,
        executor: Executor,
        *,
        priority: float = 1.0,
        target_loss: float | None = None,
        name: str = "a loop",
        turn_seconds: float = TURN_SECONDS,
        running: RunningJobs | None = None,
    ) -> None:
        """Set it up.

        Args:
            executor: whose cores it takes turns on.
            priority: its weight beside other jobs.
            target_loss: the loss at which `report` says to stop.
            name: for people.
            turn_seconds: how long it may compute before a report ends its turn.
            running: the jobs of its session.
        """
        super().__init__(
            executor,
            Kind.TRAINING,
            priority=priority,
            quality_target=self._checked_target(target_loss),
            name=name,
            turn_seconds=turn_seconds,
            running=running,
        )
        self._losses: list[float] = []

    @property
    def losses(self) -> tuple[float, ...]:
        """What was reported so far."""
        return tuple(self._losses)

    def report(self, loss: SupportsFloat) -> bool:
        """Report a loss, smaller is better. Return whether to go on.

        It returns False once the target is reached, or the session or `stop` has ended the loop. The loop is
        not paced any more then.

        Args:
            loss: anything that float() takes, such as a tensor of one number.

        Raises:
            ArgumentError: for what is no number.
        """
        try:
            self._losses.append(float(loss))
        except (TypeError, ValueError) as error:
            raise ArgumentError(
                f"the reported loss, of type {type(loss).__name__}, is not one number ({error}); report its "
                "mean, as a PyTorch module with reduction='mean' computes it"
            ) from error
        return self._note(Reported(self._losses[-1]))

    def _checked_target(self, target: Any) -> float | None:
        return None if target is None else check_loss("target_loss", target)


def report(loss: SupportsFloat) -> bool:
    """Report a loss to the pacer whose block this code runs in, and return whether to go on.

    Outside of any such block it does nothing and returns True, so code that reports runs by itself too.

    >>> report(0.25)
    True

    Raises:
        RelaqsError: in the block of a query's pacer, which takes results and no losses.
    """
    loop = current_loop()
    return True if loop is None else loop.report(loss)
