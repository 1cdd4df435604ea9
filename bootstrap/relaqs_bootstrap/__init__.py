"""Error bars: scaled totals, variances from blocks or from sums of squares, intervals, unseen groups.

Arrays in, arrays out. Shapes are written with these letters everywhere:

    G   groups: rows of the answer
    C   columns of the answer that are estimated
    K   columns of sums that estimates are computed from
    R   replicate blocks: disjoint random sets of sampling units
    P   pairs (group, block) in which rows were seen

Nothing here knows SQL, Arrow, files, clocks or random generators; numpy only.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relaqs_bootstrap.anytime import anytime_multiplier
    from relaqs_bootstrap.blocks import block_weights, leave_one_out, scale_factor
    from relaqs_bootstrap.certify import (
        Doubt,
        doubts,
        is_certified,
        largest_influence,
        largest_influence_of_unit,
    )
    from relaqs_bootstrap.closed_form import closed_form_variance
    from relaqs_bootstrap.distinct import counted_interval, distinct_interval
    from relaqs_bootstrap.intervals import (
        Intervals,
        Level,
        confidence_intervals,
        gamma_interval,
        student_interval,
        unseen_units_bound,
    )
    from relaqs_bootstrap.jackknife import jackknife_variance
    from relaqs_bootstrap.linearised import linearised_variance
    from relaqs_bootstrap.order_statistics import (
        quantile_ranks,
        share_variance_of_blocks,
        share_variance_of_rows,
    )
    from relaqs_bootstrap.selection import selection_factor
    from relaqs_bootstrap.unseen import most_in_all, most_unseen_groups, unseen_groups
    from relaqs_bootstrap.variance import Variance, sum_of_variances

__all__ = [
    "Doubt",
    "Intervals",
    "Level",
    "Variance",
    "anytime_multiplier",
    "block_weights",
    "closed_form_variance",
    "confidence_intervals",
    "counted_interval",
    "distinct_interval",
    "doubts",
    "gamma_interval",
    "is_certified",
    "jackknife_variance",
    "largest_influence",
    "largest_influence_of_unit",
    "leave_one_out",
    "linearised_variance",
    "most_in_all",
    "most_unseen_groups",
    "quantile_ranks",
    "scale_factor",
    "selection_factor",
    "share_variance_of_blocks",
    "share_variance_of_rows",
    "student_interval",
    "sum_of_variances",
    "unseen_groups",
    "unseen_units_bound",
]

# Names are loaded when they are first used: most of those who import this need the array types alone.
_HOMES = {
    "Doubt": "relaqs_bootstrap.certify",
    "Intervals": "relaqs_bootstrap.intervals",
    "Level": "relaqs_bootstrap.intervals",
    "Variance": "relaqs_bootstrap.variance",
    "anytime_multiplier": "relaqs_bootstrap.anytime",
    "block_weights": "relaqs_bootstrap.blocks",
    "closed_form_variance": "relaqs_bootstrap.closed_form",
    "confidence_intervals": "relaqs_bootstrap.intervals",
    "counted_interval": "relaqs_bootstrap.distinct",
    "distinct_interval": "relaqs_bootstrap.distinct",
    "doubts": "relaqs_bootstrap.certify",
    "gamma_interval": "relaqs_bootstrap.intervals",
    "is_certified": "relaqs_bootstrap.certify",
    "jackknife_variance": "relaqs_bootstrap.jackknife",
    "largest_influence": "relaqs_bootstrap.certify",
    "largest_influence_of_unit": "relaqs_bootstrap.certify",
    "leave_one_out": "relaqs_bootstrap.blocks",
    "linearised_variance": "relaqs_bootstrap.linearised",
    "most_in_all": "relaqs_bootstrap.unseen",
    "most_unseen_groups": "relaqs_bootstrap.unseen",
    "quantile_ranks": "relaqs_bootstrap.order_statistics",
    "scale_factor": "relaqs_bootstrap.blocks",
    "selection_factor": "relaqs_bootstrap.selection",
    "share_variance_of_blocks": "relaqs_bootstrap.order_statistics",
    "share_variance_of_rows": "relaqs_bootstrap.order_statistics",
    "student_interval": "relaqs_bootstrap.intervals",
    "sum_of_variances": "relaqs_bootstrap.variance",
    "unseen_groups": "relaqs_bootstrap.unseen",
    "unseen_units_bound": "relaqs_bootstrap.intervals",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'relaqs_bootstrap' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
