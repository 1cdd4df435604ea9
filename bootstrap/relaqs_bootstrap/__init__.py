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
    from relaqs_bootstrap.certify import (
        Doubt,
        counted_interval,
        distinct_interval,
        doubts,
        is_certified,
        largest_influence,
        largest_influence_of_unit,
        most_in_all,
        most_unseen_groups,
        selection_factor,
        unseen_groups,
    )
    from relaqs_bootstrap.intervals import (
        Intervals,
        Level,
        anytime_multiplier,
        confidence_intervals,
        gamma_interval,
        quantile_ranks,
        share_variance_of_blocks,
        share_variance_of_rows,
        student_interval,
        unseen_units_bound,
    )
    from relaqs_bootstrap.variance import (
        Variance,
        block_weights,
        closed_form_variance,
        jackknife_variance,
        leave_one_out,
        linearised_variance,
        scale_factor,
        sum_of_variances,
    )

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
    "anytime_multiplier": "relaqs_bootstrap.intervals",
    "block_weights": "relaqs_bootstrap.variance",
    "closed_form_variance": "relaqs_bootstrap.variance",
    "confidence_intervals": "relaqs_bootstrap.intervals",
    "counted_interval": "relaqs_bootstrap.certify",
    "distinct_interval": "relaqs_bootstrap.certify",
    "doubts": "relaqs_bootstrap.certify",
    "gamma_interval": "relaqs_bootstrap.intervals",
    "is_certified": "relaqs_bootstrap.certify",
    "jackknife_variance": "relaqs_bootstrap.variance",
    "largest_influence": "relaqs_bootstrap.certify",
    "largest_influence_of_unit": "relaqs_bootstrap.certify",
    "leave_one_out": "relaqs_bootstrap.variance",
    "linearised_variance": "relaqs_bootstrap.variance",
    "most_in_all": "relaqs_bootstrap.certify",
    "most_unseen_groups": "relaqs_bootstrap.certify",
    "quantile_ranks": "relaqs_bootstrap.intervals",
    "scale_factor": "relaqs_bootstrap.variance",
    "selection_factor": "relaqs_bootstrap.certify",
    "share_variance_of_blocks": "relaqs_bootstrap.intervals",
    "share_variance_of_rows": "relaqs_bootstrap.intervals",
    "student_interval": "relaqs_bootstrap.intervals",
    "sum_of_variances": "relaqs_bootstrap.variance",
    "unseen_groups": "relaqs_bootstrap.certify",
    "unseen_units_bound": "relaqs_bootstrap.intervals",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'relaqs_bootstrap' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
