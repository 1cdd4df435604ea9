"""scipy's L-BFGS-B, one evaluation at a time: whoever drives it computes the loss wherever it likes.

scipy calls the function it minimises and waits for the value; a job is asked for its next step and must not
wait. So the optimiser runs in a thread of its own, which hands out the point where it wants the loss and
sleeps until the loss is there. The thread does no more than scipy's own few vector operations.
"""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TypeAlias

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

MOST_EVALUATIONS = 1_000_000  # who stops a run is its user, not the optimiser
SMALLEST_DECREASE = 64 * np.finfo(float).eps  # of the loss, relative: there is nothing more to gain below it


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Where the loss is wanted next."""

    point: FloatArray


@dataclass(frozen=True, slots=True)
class _Accepted:
    """A point that was better than all before, and its loss."""

    point: FloatArray
    loss: float


@dataclass(frozen=True, slots=True)
class _Ended:
    """The optimiser is done: converged, or it failed with an error."""

    error: BaseException | None


_Event: TypeAlias = _Wanted | _Accepted | _Ended
_Answer: TypeAlias = tuple[float, FloatArray] | None


class _ClosedError(Exception):
    """Ends the optimiser's thread: no more losses will come."""


class Descent:
    """A minimisation from a start point. Ask for `wanted`, `tell` what the loss is there, until it is None.

    Args:
        gradient_tolerance: it has converged where no component of the gradient is larger.
        least_decrease: it has also converged where a step lowers the loss by a smaller share than this.

    Attributes:
        best: the best point accepted so far; the start at first.
        loss: the loss at the best point.
    """

    def __init__(
        self, start: FloatArray, gradient_tolerance: float, *, least_decrease: float = SMALLEST_DECREASE
    ) -> None:
        self.best = start
        self.loss = np.inf
        self.wanted: FloatArray | None = None
        self._events: SimpleQueue[_Event] = SimpleQueue()
        self._answers: SimpleQueue[_Answer] = SimpleQueue()
        threading.Thread(
            target=_minimise,
            args=(start, gradient_tolerance, least_decrease, self._events, self._answers),
            name="relaqs-descent",
            daemon=True,
        ).start()
        self._finalizer = weakref.finalize(self, self._answers.put, None)
        self._advance()

    def tell(self, loss: float, gradient: FloatArray) -> None:
        """Say what the loss and its gradient are at `wanted`."""
        if self.loss == np.inf:  # the start itself is a point accepted
            self.loss = loss
        self._answers.put((loss, gradient))
        self._advance()

    def close(self) -> None:
        """End the optimiser's thread, if it is still there."""
        self._finalizer()

    def _advance(self) -> None:
        while isinstance(event := self._events.get(), _Accepted):
            self.best, self.loss = event.point, event.loss
        self.wanted = event.point if isinstance(event, _Wanted) else None
        if isinstance(event, _Ended) and event.error is not None:
            raise event.error


def _minimise(
    start: FloatArray,
    gradient_tolerance: float,
    least_decrease: float,
    events: SimpleQueue[_Event],
    answers: SimpleQueue[_Answer],
) -> None:
    """Run on a thread of its own, which must not refer to the Descent: it ends when that is forgotten."""
    from scipy.optimize import OptimizeResult, minimize  # a quarter of a second, for those who need it

    def loss_and_gradient(point: FloatArray) -> tuple[float, FloatArray]:
        events.put(_Wanted(point.copy()))
        if (answer := answers.get()) is None:
            raise _ClosedError
        return answer

    def note(intermediate_result: OptimizeResult) -> None:
        events.put(_Accepted(intermediate_result.x.copy(), float(intermediate_result.fun)))

    try:
        minimize(
            loss_and_gradient,
            start,
            jac=True,
            method="L-BFGS-B",
            callback=note,
            options={
                "gtol": gradient_tolerance,
                "ftol": least_decrease,
                "maxiter": MOST_EVALUATIONS,
                "maxfun": MOST_EVALUATIONS,
            },
        )
    except _ClosedError:
        return
    except BaseException as error:  # whatever it is, it belongs to the job
        events.put(_Ended(error))
        return
    events.put(_Ended(None))
