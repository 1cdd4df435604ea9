"""From a checked SELECT to an OnlinePlan. One rule per file; the four tuples are the table of contents.

Pure: SQL and catalog in, plan out. No rule reads data, a clock or a random number.
"""

from __future__ import annotations

from collections.abc import Callable

from relaqs_engine.rewrite.aggregates import split_aggregates
from relaqs_engine.rewrite.draft import Draft
from relaqs_engine.rewrite.existence import read_no_outputs_of_exists
from relaqs_engine.rewrite.flatten import flatten
from relaqs_engine.rewrite.hoist import hoist_statics
from relaqs_engine.rewrite.kept_values import check_kept_values
from relaqs_engine.rewrite.membership import decide_membership
from relaqs_engine.rewrite.method import choose_method
from relaqs_engine.rewrite.outlier_index import read_outliers_apart
from relaqs_engine.rewrite.outputs import classify_outputs
from relaqs_engine.rewrite.rows import rows_as_state
from relaqs_engine.rewrite.shape import check_shape
from relaqs_engine.rewrite.sources import choose_streams
from relaqs_engine.rewrite.subqueries import check_subqueries
from relaqs_engine.rewrite.unbounded import say_what_is_unbounded

Rule = Callable[[Draft], Draft]

# What the query says, whatever layout of a table is read: they look at names and types alone.
READING: tuple[Rule, ...] = (flatten, read_no_outputs_of_exists, check_shape)
# What is sampled, with one choice of layouts.
SAMPLING: tuple[Rule, ...] = (choose_streams, check_subqueries)
# What is computed of the sample, with the choice that samples most.
AGGREGATING: tuple[Rule, ...] = (
    split_aggregates,
    classify_outputs,
    decide_membership,
    hoist_statics,
    choose_method,
    read_outliers_apart,
    say_what_is_unbounded,
    check_kept_values,
)
# What is read of the sample where the query has no aggregates.
LISTING: tuple[Rule, ...] = (hoist_statics, rows_as_state)
