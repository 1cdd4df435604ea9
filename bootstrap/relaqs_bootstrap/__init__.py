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

from typing import TYPE_CHECKING

from relaqs_bootstrap.first_use import on_first_use

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
__getattr__, __dir__ = on_first_use(__name__)
