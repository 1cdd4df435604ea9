"""How many groups have not been met yet, and how many rows those may have that were hardly met."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaincinv

from relaqs_bootstrap.arrays import FloatArray
from relaqs_bootstrap.variance import check_fraction


def unseen_groups(singletons: int, doubletons: int, rows: int, fraction: float) -> float:
    """Return an estimate, which is a lower bound in expectation, of the groups no scanned row belongs to.

    singletons, doubletons: groups seen in exactly one and in exactly two rows. rows: rows scanned that fell
    in any group. fraction: scanned share of the table, in (0, 1]; at 1 the answer is 0.
    Source: Chao and Lin 2012, Nonparametric lower bounds for species richness and shared species richness
    under sampling without replacement (Biometrics 68): f₁² / (2·f₂·n/(n−1) + f₁·q/(1−q)).
    """
    check_fraction(fraction)
    if min(singletons, doubletons) < 0 or rows < singletons + 2 * doubletons:
        raise ValueError(
            f"{singletons} groups of one row and {doubletons} of two do not fit into {rows} rows"
        )
    if singletons == 0 or fraction == 1.0:
        return 0.0
    replacement = 2.0 * doubletons * rows / max(rows - 1, 1)
    return singletons**2 / (replacement + singletons * fraction / (1.0 - fraction))


def most_in_all(seen: FloatArray, fraction: float, tail: float) -> FloatArray:
    """Return how many units groups may have in the whole table of which so many were scanned, elementwise.

    tail: the probability of more. The upper Poisson limit of what was seen, scaled: of nothing seen
    −ln(tail) / fraction, so 138 at a tail of one in a million and a tenth of the table.
    """
    check_fraction(fraction)
    return np.asarray(gammaincinv(seen + 1.0, 1.0 - tail) / fraction, dtype=np.float64)
