"""From a checked SELECT to what a plan needs. One transformation is one file.

A rule takes a `Draft`, the query as far as it is understood, and returns the next one. Where it finds no
sound estimate it raises `NotOnlineError` with the reason. Rules read SQL and the catalog. They read no data,
no clock and no random number.

The tuples below name rules by file and function. A file is loaded when its rule first applies: a query
without aggregates opens no file about them, and an ordinary GROUP BY none about EXISTS, HAVING or an index
of rows.

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
from importlib import import_module

from sqlglot import exp

from relaqs_engine.rewrite.draft import Draft
from relaqs_engine.sql.dialect import find_first

Rule = Callable[[Draft], Draft]


def _always(draft: Draft) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Named:
    """A rule by its name. Its file is loaded when it first applies.

    Attributes:
        name: of its file in this folder, and of its function.
        applies: whether a draft has the construct that the rule is about. Others stay as they are.
    """

    name: str
    applies: Callable[[Draft], bool] = _always

    @property
    def rule(self) -> Rule:
        """Return the rule itself, without its condition."""
        file, _, function = self.name.partition(":")
        rule: Rule = getattr(import_module(f"{__name__}.{file}"), function)
        return rule

    def __call__(self, draft: Draft) -> Draft:
        return self.rule(draft) if self.applies(draft) else draft


def _picks_groups(draft: Draft) -> bool:
    return any(draft.select.args.get(part) for part in ("having", "limit", "offset"))


def _has_outliers(draft: Draft) -> bool:
    return any(each.layout.outliers or each.layout.outlier_units for each in draft.streams)


# What the query says, whatever layout of a table is read: they look at names and types alone.
READING = (
    Named("normalize:flatten"),
    Named("exists:read_no_outputs_of_exists", lambda draft: find_first(draft.select, exp.Exists) is not None),
    Named("normalize:check_shape"),
)
# What is sampled, with one choice of layouts.
SAMPLING = (
    Named("sampling:choose_streams"),
    Named("sampling:read_members_whole"),
    Named("sampling:check_little_is_read_whole"),
    Named("sampling:check_subqueries"),
)
# What is computed of the sample, with the choice that samples most.
AGGREGATING = (
    Named("aggregates:split_aggregates"),
    Named("outputs:classify_outputs"),
    Named("having_and_limit:decide_membership", _picks_groups),
    Named("scans:hoist_statics"),
    Named("method:choose_method"),
    Named("method:check_groups_have_rows"),
    Named("exact_rows:read_outliers_apart", _has_outliers),
    Named("exact_rows:read_heavy_groups", lambda draft: any(each.layout.heavy for each in draft.streams)),
    Named("unbounded:say_what_is_unbounded"),
    Named("unbounded:check_first_values"),
)
# The same of what is estimated to its end, and never runs as a whole after a sample.
ESTIMATED_TO_THE_END = (*AGGREGATING, Named("unbounded:check_kept_values"))
# What is read of the sample where the query has no aggregates.
LISTING = (Named("scans:hoist_statics"), Named("render:rows_as_state"))
