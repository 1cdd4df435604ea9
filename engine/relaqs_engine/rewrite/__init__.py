"""From a checked SELECT to what a plan needs. One rule is one file.

A rule takes a `Draft`, the query as far as it is understood, and returns the next one. Where it finds no
sound estimate it raises `NotOnlineError` with the reason. Rules read SQL and the catalog. They read no data,
no clock and no random number.

Three of the tuples below list the rules of a plain aggregation, in the order in which they run. The fourth,
LISTING, takes the place of AGGREGATING where a query has no aggregates. Other queries need more than that,
and these modules hold the rest:

    windows, DISTINCT, set operations, aggregates of aggregates
        carve           cuts the query at its aggregations
        unions          moves aggregates below a UNION ALL, for `carve`
        undecided       aggregates before other answers decide which rows count, for `carve`
        above           merges what was aggregated below, for those two
        told_apart      makes a UNION whose sides differ in a constant a UNION ALL, for `carve`
        late_conditions finds rows before the subqueries that they are compared with, for `carve`
        one_row         makes one query of inner aggregates over the same rows, for `carve`
        levels          says what is known of the query around the answers
        trust           says how far an estimate of its columns can be trusted
        around          writes the SQL of the query around the answers
        passed_keys     says which columns of such a query are keys
        one_row_moves   bounds what one row could move in the totals of such a query

    an aggregate over all partitions stands inside the query: `x > (SELECT avg(x) FROM t)`
        stages          makes the inner aggregate a query of its own, and puts a look-up in its place
        refine          plans the outer query over rows that are kept until they are decided
        kept_rows       says which kept rows count
        cross_fit       compares a row with the other rows of its group
        shared          gives every group the stage's value as a column
        over_stages     plans an outer query that reads nothing but stages and static tables

    what names mean, before any rule looks at them
        scopes          says which query a column or an aggregate belongs to
        named_outputs   gives each output a name of its own
        groups_below    parts a query's groups from the subqueries that depend on them

    helpers of single rules
        shared_columns  the columns that USING shares, for `flatten`
        first_of_each   DISTINCT ON as GROUP BY, for `flatten`
        grouping        ROLLUP, CUBE and GROUPING SETS, for `split_aggregates`
        units           what a unit adds to a group, and what is known of a derived table of units
        moments         variances, CORR, regressions, SKEWNESS and the like, for `split_aggregates`
        so_far          FIRST, ANY_VALUE, ARG_MAX and the like, for `split_aggregates`
        listed_values   MEDIAN, MODE, LIST and others of all values or rows, for `split_aggregates`
        existence_by_key  EXISTS as a value, and as IN, for `one_row`, `carve` and `refine`
        own_members     IN that every row meets, for `flatten`
        semi_joins      SEMI and ANTI JOIN as EXISTS, for `flatten`
        rounded         the value before it is rounded, for `classify_outputs`
        branches        values that an estimate chooses, for `say_what_is_unbounded`
        jumps           values that jump or bend, for `say_what_is_unbounded`
        carried_types   types that survive the way between processes
        near            the groups that HAVING leaves out for now
        render          the SQL texts of a plan
        scans           what a partial query reads of its streams
        prediction      what a choice of layouts costs, for the planner
        selectivity     the share of the rows that conditions keep, for `prediction`
        draft           the Draft itself
"""

from __future__ import annotations

from collections.abc import Callable

from relaqs_engine.rewrite.aggregates import split_aggregates
from relaqs_engine.rewrite.draft import Draft
from relaqs_engine.rewrite.existence import read_no_outputs_of_exists
from relaqs_engine.rewrite.flatten import flatten
from relaqs_engine.rewrite.heavy_groups import read_heavy_groups
from relaqs_engine.rewrite.hoist import hoist_statics
from relaqs_engine.rewrite.kept_values import check_kept_values
from relaqs_engine.rewrite.members import read_members_whole
from relaqs_engine.rewrite.membership import decide_membership
from relaqs_engine.rewrite.method import choose_method
from relaqs_engine.rewrite.outlier_index import read_outliers_apart
from relaqs_engine.rewrite.outputs import classify_outputs
from relaqs_engine.rewrite.read_whole import check_little_is_read_whole
from relaqs_engine.rewrite.rows import rows_as_state
from relaqs_engine.rewrite.shape import check_shape
from relaqs_engine.rewrite.sources import choose_streams
from relaqs_engine.rewrite.subqueries import check_subqueries
from relaqs_engine.rewrite.unbounded import say_what_is_unbounded

Rule = Callable[[Draft], Draft]

# What the query says, whatever layout of a table is read: they look at names and types alone.
READING: tuple[Rule, ...] = (flatten, read_no_outputs_of_exists, check_shape)
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
    decide_membership,
    hoist_statics,
    choose_method,
    read_outliers_apart,
    read_heavy_groups,
    say_what_is_unbounded,
    check_kept_values,
)
# What is read of the sample where the query has no aggregates.
LISTING: tuple[Rule, ...] = (hoist_statics, rows_as_state)
