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

import ast
import inspect
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relaqs_bootstrap.certify import (
        Doubt,
        counted_interval,
        distinct_interval,
        doubts,
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
    "jackknife_variance",
    "largest_influence",
    "largest_influence_of_unit",
    "leave_one_out",
    "linearised_variance",
    "most_in_all",
    "most_unseen_groups",
    "quantile_ranks",
    "selection_factor",
    "share_variance_of_blocks",
    "share_variance_of_rows",
    "student_interval",
    "sum_of_variances",
    "unseen_groups",
    "unseen_units_bound",
]


def on_first_use(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the `__getattr__` and the `__dir__` of a package, for what its `if TYPE_CHECKING:` imports.

    So each name is imported in one place, for type checkers and for users. Raises ImportError where the
    package was installed without its .py files.
    """

    @cache
    def homes() -> dict[str, str]:
        module = sys.modules[package]
        try:
            source = inspect.getsource(module)
        except OSError as error:
            raise ImportError(f"{package} reads its names from its .py file; install it with that") from error
        blocks = [
            node
            for node in ast.parse(source).body
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        ]
        imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
        found = {each.name: node.module or "" for node in imports for each in node.names}
        return {name: found[name] for name in module.__all__ if name in found}

    def load(name: str) -> object:
        if name.startswith("__") or name not in homes():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes()[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted({*vars(sys.modules[package]), *homes()})


# Names are loaded when they are first used: most of those who import this need the array types alone.
__getattr__, __dir__ = on_first_use(__name__)
