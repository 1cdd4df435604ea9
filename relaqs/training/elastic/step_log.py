"""What a gang has done: its steps, each once, and the changes that were carried out."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from relaqs_bootstrap.arrays import IntArray

from relaqs.training.elastic.journal import Journal

if TYPE_CHECKING:
    from relaqs.training.elastic.rank import StepsMade


@dataclass(frozen=True, slots=True)
class Rescale:
    """A change of the gang that was carried out.

    Attributes:
        step: the first step after it.
        ranks, batch_rows: since then.
        pause_seconds: from the end of the last step before to the start of that one, of the worst rank. None
            where no rank had made a step before.

    >>> Rescale(step=120, ranks=4, batch_rows=512, pause_seconds=0.02).ranks
    4
    """

    step: int
    ranks: int
    batch_rows: int
    pause_seconds: float | None


class StepLog:
    """The steps that were made, each once. What is made again is what was made before.

    first_step: those before it were made by others.
    """

    def __init__(self, first_step: int = 0) -> None:
        self._first_step = first_step
        self._rows, self._rates, self._ranks = array("q"), array("d"), array("q")
        self.losses = array("d")

    @property
    def end(self) -> int:
        """The first step that was not made yet."""
        return self._first_step + len(self._rows)

    def note(self, made: StepsMade, ranks: int) -> None:
        assert made.first_step <= self.end
        new = slice(max(0, self.end - made.first_step), None)
        self._rows.extend(made.batch_rows[new].tolist())
        self._rates.extend(made.rates[new].tolist())
        self.losses.extend(made.losses[new].tolist())
        self._ranks.extend([ranks] * (len(self._rows) - len(self._ranks)))

    def rows_since(self, step: int) -> IntArray:
        return np.array(self._rows[step - self._first_step :], dtype=np.int64)

    @property
    def batch_rows(self) -> int | None:
        """The rows of the last step; None before the first one. May be asked for from any thread."""
        return self._rows[-1] if self._rows else None

    def journal(self, since_step: int | None = None) -> Journal:
        """Return what was noted from a step on. May be asked for from any thread."""
        first = 0 if since_step is None else since_step - self._first_step
        ranks, rates, rows = self._ranks[first:], self._rates[first:], self._rows[first:]
        whole = slice(0, len(ranks))  # another thread may have noted more steps meanwhile
        return Journal(np.array(rows[whole]), np.array(rates[whole]), np.array(ranks))
