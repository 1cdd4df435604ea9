"""What goes from a stage to the next one: the outputs of its layers for a piece."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Passed:
    """The outputs of a stage for a piece.

    Attributes:
        values: shape (rows, …).
        draws: where the generator of random numbers stands after the layers so far; None: none has drawn. So
            dropout draws what it would draw in the whole model.
    """

    values: NDArray[Any]
    draws: NDArray[np.uint8] | None
