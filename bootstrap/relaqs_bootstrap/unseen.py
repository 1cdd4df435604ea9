"""How many groups have not been met yet, and how many rows hardly met groups may have."""

from __future__ import annotations

from math import log, log1p

import numpy as np

from relaqs_bootstrap.arrays import FloatArray, IntArray
from relaqs_bootstrap.quantiles import gamma_upper
from relaqs_bootstrap.special import misses_exceeded
from relaqs_bootstrap.variance import check_fraction

_ROUNDING = 1e-9


def unseen_groups(singletons: int, doubletons: int, rows: int, fraction: float) -> float:
    """Return an estimate of the groups that no scanned row belongs to. In expectation it is a lower bound.

    Args:
        singletons: f₁, the groups seen in exactly one row.
        doubletons: f₂, the groups seen in exactly two rows.
        rows: n, the scanned rows that fell in any group.
        fraction: q, the scanned share of the table, in (0, 1]. At 1 the result is 0.

    Source: Chao and Lin 2012, Nonparametric lower bounds for species richness and shared species richness
    under sampling without replacement (Biometrics 68): f₁² / (2·f₂·n/(n−1) + f₁·q/(1−q)).

    Six groups met once and three met twice, with a tenth read: 36 / (2·3·100/99 + 6/9):

    >>> round(unseen_groups(singletons=6, doubletons=3, rows=100, fraction=0.1), 2)
    5.35
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


def most_unseen_groups(singletons: IntArray, fraction: float, tail: float) -> FloatArray:
    """Return the most groups that no scanned unit belongs to, given those met in exactly one, elementwise.

    Args:
        singletons: the groups seen in exactly one unit.
        fraction: f, the scanned share of the table.
        tail: the probability that there are more.

    Nothing is assumed of the groups' sizes. A group of N units is met once with probability N·f·(1−f)ᴺ⁻¹ and
    missed with (1−f)ᴺ. So of the groups that are missed or met once, each was met once with probability f or
    more, independently of the others. With too many of them, more would have been met.

    An eighth was read and no group was met only once. Of 28 such groups, all are missed in 0.875²⁸ = 2.4 % of
    the cases. So there are at most 27:

    >>> import numpy as np
    >>> most_unseen_groups(np.array([0, 4]), fraction=0.125, tail=0.025).tolist()
    [27.0, 74.0]
    """
    check_fraction(fraction)
    if fraction == 1.0:
        return np.zeros(len(singletons))
    distinct, place = np.unique(singletons, return_inverse=True)
    most = np.ceil([misses_exceeded(int(each) + 1, fraction, tail) - _ROUNDING for each in distinct])
    found: FloatArray = np.maximum(most, 0.0)[place]
    return found


def enough_to_be_met(fraction: float, tail: float) -> float:
    """Return how many scanned units the smallest group must have, for a group of its size not to be missed.

    Args:
        fraction: f, the scanned share of the table.
        tail: how often such a group is missed.

    A group with n scanned units has about n/f, which are all missed with probability (1−f)ⁿᐟᶠ. At most 14
    units are needed for one in a million, and fewer the more was read:

    >>> round(enough_to_be_met(0.001, 1e-6), 2), round(enough_to_be_met(0.125, 1e-6), 2)
    (13.81, 12.93)
    """
    check_fraction(fraction)
    return 0.0 if fraction == 1.0 else fraction * log(tail) / log1p(-fraction)


def most_in_all(seen: FloatArray, fraction: float, tail: float) -> FloatArray:
    """Return the most units that groups may have in the whole table, given those scanned, elementwise.

    Args:
        seen: the units scanned of each group.
        fraction: the scanned share of the table.
        tail: the probability that a group has more.

    It is the upper Poisson limit of what was seen, scaled. Of nothing seen that is −ln(tail) / fraction: at
    one in a million and a tenth of the table, 13.8 / 0.1:

    >>> import numpy as np
    >>> most_in_all(np.array([0.0, 10.0]), fraction=0.1, tail=1e-6).round().tolist()
    [138.0, 344.0]
    """
    check_fraction(fraction)
    return gamma_upper(seen + 1.0, tail) / fraction
