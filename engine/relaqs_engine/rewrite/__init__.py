"""From a checked SELECT to what a plan needs. One transformation is one file.

A rule takes a `Draft`, the query as far as it is understood, and returns the next one. Where it finds no
sound estimate it raises `NotOnlineError` with the reason. Rules read SQL and the catalog. They read no data,
no clock and no random number.

A rule `Of` a construct is entered where the query has the construct: an ordinary GROUP BY opens no file about
EXISTS, HAVING or an index of rows.

Three of the tuples below list the rules of a plain aggregation, in the order in which they run. The fourth,
LISTING, takes the place of AGGREGATING where a query has no aggregates. In the order of their use:

    scopes             which query a column or an aggregate belongs to, and a name for each output
    grouping           ROLLUP, CUBE and GROUPING SETS; a query's groups, and what is computed from them
    normalize          one flat SELECT of a known shape
    exists             EXISTS as a join key, a value or a set; deferred predicates
    sampling           which tables are sampled together, and what is read whole beside them
    aggregates         partial aggregates that merge; `statistics` has those of several sums, and
                       `listed_values` those of all values
    units              what a sampling unit adds to a group, where it is a cluster key
    outputs            a key, an estimate, a bound, or nothing sound
    having_and_limit   the numbers that HAVING and LIMIT compare
    scans              what a task reads of streams and of static tables
    method             where error bars come from
    exact_rows         the outlier index and the index of heavy units
    unbounded          what is never certified before the end; `smoothness` says how far to trust an estimate
    render             the SQL texts of a plan
    row_group_marks    which row groups of plain files are read

Composite queries (windows, DISTINCT, set operations, aggregates of aggregates):

    eager_aggregation  aggregates below joins, conditions and UNION ALL
    split              cuts the query at its aggregations
    levels             what is known of the query around the answers
    around             writes the SQL of the query around the answers

An aggregate over all partitions inside the query, as in `x > (SELECT avg(x) FROM t)`:

    scalar_subqueries  makes it a query of its own, and puts a look-up in its place
    uncertain_rows     keeps rows of the outer query until they are decided
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from relaqs_engine.rewrite.aggregates import split_aggregates
from relaqs_engine.rewrite.draft import Draft
from relaqs_engine.rewrite.method import check_groups_have_rows, choose_method
from relaqs_engine.rewrite.normalize import check_shape, flatten
from relaqs_engine.rewrite.outputs import classify_outputs
from relaqs_engine.rewrite.render import rows_as_state
from relaqs_engine.rewrite.sampling import (
    check_little_is_read_whole,
    check_subqueries,
    choose_streams,
    read_members_whole,
)
from relaqs_engine.rewrite.scans import hoist_statics
from relaqs_engine.rewrite.unbounded import check_first_values, check_kept_values, say_what_is_unbounded
from relaqs_engine.sql.dialect import find_first

Rule = Callable[[Draft], Draft]


@dataclass(frozen=True, slots=True)
class Of:
    """A rule about a construct that few queries have. Others get their draft back, and never load its file.

    Attributes:
        occurs: whether a draft has the construct.
        load: returns the rule.
    """

    occurs: Callable[[Draft], bool]
    load: Callable[[], Rule]

    def __call__(self, draft: Draft) -> Draft:
        return self.load()(draft) if self.occurs(draft) else draft


def rule_of(each: Rule) -> Rule:
    """Return the rule of a tuple below itself, without its condition."""
    return each.load() if isinstance(each, Of) else each


def _picks_groups(draft: Draft) -> bool:
    return any(draft.select.args.get(part) for part in ("having", "limit", "offset"))


def _has_outliers(draft: Draft) -> bool:
    return any(each.layout.outliers or each.layout.outlier_units for each in draft.streams)


def _outputs_of_exists() -> Rule:
    from relaqs_engine.rewrite.exists import read_no_outputs_of_exists

    return read_no_outputs_of_exists


def _membership() -> Rule:
    from relaqs_engine.rewrite.having_and_limit import decide_membership

    return decide_membership


def _outliers() -> Rule:
    from relaqs_engine.rewrite.exact_rows import read_outliers_apart

    return read_outliers_apart


def _heavy_groups() -> Rule:
    from relaqs_engine.rewrite.exact_rows import read_heavy_groups

    return read_heavy_groups


# What the query says, whatever layout of a table is read: they look at names and types alone.
READING: tuple[Rule, ...] = (
    flatten,
    Of(lambda draft: find_first(draft.select, exp.Exists) is not None, _outputs_of_exists),
    check_shape,
)
# What is sampled, with one choice of layouts.
SAMPLING: tuple[Rule, ...] = (
    choose_streams,
    read_members_whole,
    check_little_is_read_whole,
    check_subqueries,
)
# What is computed of the sample, with the choice that samples most.
AGGREGATING: tuple[Rule, ...] = (
    split_aggregates,
    classify_outputs,
    Of(_picks_groups, _membership),
    hoist_statics,
    choose_method,
    check_groups_have_rows,
    Of(_has_outliers, _outliers),
    Of(lambda draft: any(each.layout.heavy for each in draft.streams), _heavy_groups),
    say_what_is_unbounded,
    check_first_values,
)
# The same of what is estimated to its end, and never runs as a whole after a sample.
ESTIMATED_TO_THE_END: tuple[Rule, ...] = (*AGGREGATING, check_kept_values)
# What is read of the sample where the query has no aggregates.
LISTING: tuple[Rule, ...] = (hoist_statics, rows_as_state)
