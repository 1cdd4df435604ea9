"""Every aggregate function that a query may call, and its law: how its value follows from parts of the rows.

`TABLE` is the one place that knows aggregates by name. `call_of` takes a call apart, and `Call.merge` applies
the law of its function. Whoever runs an aggregation in parts asks that:

    bit_xor(x)             BIT_XOR: what the parts give is combined by bit_xor again
    bit_xor(DISTINCT x)    ROWS: two parts may have the same value, so all rows are listed
    max(x)                 MAX: the greatest of what the parts give
    max(x, 3)              ROWS: the law of max is about one argument

FILTER changes no law: each part leaves out its own rows. A law holds for all types that DuckDB's binder lets
through. A call that has no law, as that of a function which is not in the table, runs whole.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

import sqlglot
from sqlglot import exp

from relaqs_engine.sql.dialect import DIALECT, find_all


class Merge(Enum):
    """How a value over all rows follows from parts of them."""

    TOTAL = "the sum of the sums, NULL of no rows; an estimate scales it"
    COUNT = "the sum of the counts, 0 of no rows; an estimate scales it"
    MEAN = "a total over a count; of dates, times and intervals as well"
    MOMENTS = "a formula over counts, means and sums of products of deviations"
    MIN = "the least: a bound"
    MAX = "the greatest: a bound"
    BIT_AND = "bit_and of them"
    BIT_OR = "bit_or of them"
    BIT_XOR = "bit_xor of them"
    ANY = "the first that is found and is not NULL; with ORDER BY the first in that order"
    FIRST = "the first that is found; with ORDER BY the first in that order"
    LAST = "the last that is found; with ORDER BY the last in that order"
    BESIDE_MIN = "the value beside the least of a second one"
    BESIDE_MAX = "the value beside the greatest of a second one"
    QUANTILE = "the function of all values that are not NULL, which are listed; it has an interval"
    VALUES = "the function of all values that are not NULL, which are listed"
    SEEN = "the function of the distinct values, which are listed: at least what was seen"
    DISTINCT = "the function of the distinct values, which are listed"
    UNIQUE = "the number of distinct values, which is estimated"
    ROWS = "the call itself over all rows, whose arguments are listed"


# names: DuckDB's; the first one stands for the others
# node: what sqlglot reads a call as; - where it knows no such function
# of: how many arguments the law is about; another call merges as ROWS
# merges, DISTINCT, ORDER BY: how a plain call merges, and one with DISTINCT, or ORDER BY, inside of it; same:
#   as a plain one, since equal values, or their order, make no difference
# no rows: its value over none
# value: plus where it is never below zero, argument where it is not if its argument is not; grows where it
#   gets longer with each row
TABLE = """
names                                 node            of   merges      DISTINCT  ORDER BY  no rows  value
sum count_if countif                  Sum             1    TOTAL       DISTINCT  ROWS      NULL     argument
avg mean                              Avg             1    MEAN        DISTINCT  ROWS      NULL     argument
count                                 Count           0,1  COUNT       UNIQUE    same      0        plus
min                                   Min             1    MIN         same      same      NULL     argument
max                                   Max             1    MAX         same      same      NULL     argument
bool_and                              LogicalAnd      1    MIN         same      same      NULL     -
bool_or                               LogicalOr       1    MAX         same      same      NULL     -
bit_and                               BitwiseAndAgg   1    BIT_AND     same      same      NULL     -
bit_or                                BitwiseOrAgg    1    BIT_OR      same      same      NULL     -
bit_xor                               BitwiseXorAgg   1    BIT_XOR     ROWS      same      NULL     -
any_value                             AnyValue        1    ANY         same      same      NULL     -
first arbitrary                       First           1    FIRST       same      same      NULL     -
last                                  Last            1    LAST        same      same      NULL     -
arg_min argmin min_by                 ArgMin          2    BESIDE_MIN  same      ROWS      NULL     -
arg_max argmax max_by                 ArgMax          2    BESIDE_MAX  same      ROWS      NULL     -
var_samp variance                     Variance        1    MOMENTS     ROWS      ROWS      NULL     plus
var_pop                               VariancePop     1    MOMENTS     ROWS      ROWS      NULL     plus
stddev                                Stddev          1    MOMENTS     ROWS      ROWS      NULL     plus
stddev_samp                           StddevSamp      1    MOMENTS     ROWS      ROWS      NULL     plus
stddev_pop                            StddevPop       1    MOMENTS     ROWS      ROWS      NULL     plus
sem                                   -               1    MOMENTS     ROWS      ROWS      NULL     plus
skewness                              Skewness        1    MOMENTS     ROWS      ROWS      NULL     -
kurtosis                              Kurtosis        1    MOMENTS     ROWS      ROWS      NULL     -
kurtosis_pop                          -               1    MOMENTS     ROWS      ROWS      NULL     -
covar_pop                             CovarPop        2    MOMENTS     ROWS      ROWS      NULL     -
covar_samp                            CovarSamp       2    MOMENTS     ROWS      ROWS      NULL     -
corr                                  Corr            2    MOMENTS     ROWS      ROWS      NULL     -
regr_slope                            RegrSlope       2    MOMENTS     ROWS      ROWS      NULL     -
regr_intercept                        RegrIntercept   2    MOMENTS     ROWS      ROWS      NULL     -
regr_r2                               RegrR2          2    MOMENTS     ROWS      ROWS      NULL     plus
regr_count                            RegrCount       2    MOMENTS     ROWS      ROWS      0        plus
regr_avgx                             RegrAvgx        2    MOMENTS     ROWS      ROWS      NULL     -
regr_avgy                             RegrAvgy        2    MOMENTS     ROWS      ROWS      NULL     -
regr_sxx                              RegrSxx         2    MOMENTS     ROWS      ROWS      NULL     plus
regr_syy                              RegrSyy         2    MOMENTS     ROWS      ROWS      NULL     plus
regr_sxy                              RegrSxy         2    MOMENTS     ROWS      ROWS      NULL     -
median                                Median          1    QUANTILE    ROWS      same      NULL     argument
quantile_cont percentile_cont         PercentileCont  2    QUANTILE    ROWS      ROWS      NULL     argument
quantile_disc percentile_disc         PercentileDisc  2    QUANTILE    ROWS      ROWS      NULL     argument
quantile                              Quantile        2    QUANTILE    ROWS      ROWS      NULL     argument
approx_quantile                       ApproxQuantile  2    QUANTILE    ROWS      ROWS      NULL     argument
mode                                  Mode            1    VALUES      ROWS      ROWS      NULL     grows
mad                                   -               1    VALUES      ROWS      same      NULL     plus
product                               -               1    VALUES      ROWS      ROWS      NULL     -
entropy                               -               1    VALUES      ROWS      same      0.0      plus
histogram                             -               1    VALUES      ROWS      same      NULL     grows
approx_count_distinct                 ApproxDistinct  1    SEEN        same      same      0        plus
approx_top_k                          -               -    ROWS        ROWS      ROWS      NULL     -
reservoir_quantile                    -               -    ROWS        ROWS      ROWS      NULL     -
list array_agg                        ArrayAgg        -    ROWS        ROWS      ROWS      NULL     grows
string_agg group_concat listagg       GroupConcat     -    ROWS        ROWS      ROWS      NULL     grows
histogram_exact                       -               -    ROWS        ROWS      ROWS      NULL     -
bitstring_agg                         -               -    ROWS        ROWS      ROWS      NULL     -
decimal_average                       -               -    ROWS        ROWS      ROWS      NULL     -
lttb                                  -               -    ROWS        ROWS      ROWS      NULL     -
arg_min_null                          -               -    ROWS        ROWS      ROWS      NULL     -
arg_max_null                          -               -    ROWS        ROWS      ROWS      NULL     -
arg_min_nulls_last                    -               -    ROWS        ROWS      ROWS      NULL     -
arg_max_nulls_last                    -               -    ROWS        ROWS      ROWS      NULL     -
sum_no_overflow                       -               -    ROWS        ROWS      ROWS      NULL     argument
fsum kahan_sum sumkahan               -               -    ROWS        ROWS      ROWS      NULL     argument
favg                                  -               -    ROWS        ROWS      ROWS      NULL     argument
combine_aggr                          -               -    ROWS        ROWS      ROWS      NULL     -
json_group_array                      -               -    ROWS        ROWS      ROWS      NULL     grows
json_group_object                     -               -    ROWS        ROWS      ROWS      NULL     grows
json_group_structure                  -               -    ROWS        ROWS      ROWS      NULL     grows
variant_group_array                   -               -    ROWS        ROWS      ROWS      NULL     grows
variant_group_object                  -               -    ROWS        ROWS      ROWS      NULL     grows
"""

# What is written in other words before anything else is done with it: x and y are its arguments. The words
# are those of DuckDB's own macro, or give the same value over all rows.
IN_OTHER_WORDS = {
    "count_star": "count(*)",
    "geomean": "exp(avg(ln(x)))",
    "geometric_mean": "exp(avg(ln(x)))",
    "weighted_avg": "(sum((x) * (y)) / sum(CASE WHEN (x) IS NOT NULL THEN y ELSE 0 END))",
    "wavg": "(sum((x) * (y)) / sum(CASE WHEN (x) IS NOT NULL THEN y ELSE 0 END))",
}


@dataclass(frozen=True, slots=True)
class Law:
    """A row of the table.

    Attributes:
        names: DuckDB's names of the function.
        node: what sqlglot reads a call as; None where it knows no such function.
        arguments: of how many arguments the law is.
        merge: how a plain call merges.
        distinct: how a call with DISTINCT merges.
        ordered: how a call with ORDER BY inside merges.
        of_nothing: its value over no rows, as SQL.
        value: what is known of its values: "argument", "plus", "grows" or "-", see above.
    """

    names: tuple[str, ...]
    node: type[exp.Expr] | None
    arguments: tuple[int, ...]
    merge: Merge
    distinct: Merge
    ordered: Merge
    of_nothing: str
    value: str

    @classmethod
    def of_row(cls, row: str) -> Law:
        names, node, arguments, merge, distinct, ordered, of_nothing, value = re.split(r" {2,}", row)

        def merge_of(text: str) -> Merge:
            return Merge[merge if text == "same" else text]

        return cls(
            tuple(names.split()),
            None if node == "-" else getattr(exp, node),
            tuple(map(int, arguments.split(","))) if arguments != "-" else (),
            merge_of(merge),
            merge_of(distinct),
            merge_of(ordered),
            of_nothing,
            value,
        )

    @property
    def name(self) -> str:
        return self.names[0]


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an aggregate, taken apart.

    Attributes:
        law: of its function.
        node: the call, without its FILTER.
        arguments: without DISTINCT and ORDER BY.
        order: what it is ordered by inside.
        condition: its FILTER; None where it has none.
    """

    law: Law
    node: exp.Expr
    arguments: tuple[exp.Expr, ...]
    is_distinct: bool = False
    order: tuple[exp.Expr, ...] = ()
    condition: exp.Where | None = None

    @property
    def merge(self) -> Merge:
        """How the call merges, by the law of its function."""
        law = self.law
        if len(self.arguments) not in law.arguments:
            return Merge.ROWS
        if self.order and law.ordered is not law.merge:
            return law.ordered
        return law.distinct if self.is_distinct else law.merge


LAWS = tuple(map(Law.of_row, TABLE.strip().split("\n")[1:]))
_BY_NAME = {name: law for law in LAWS for name in law.names}
_BY_NODE = {law.node: law for law in LAWS if law.node is not None}
_TAKEN_IN_ORDER = (Merge.ANY, Merge.FIRST, Merge.LAST)
_OF_THE_FIRST_ROWS = (*_TAKEN_IN_ORDER, Merge.BESIDE_MIN, Merge.BESIDE_MAX, Merge.ROWS)
_AROUND_AN_ARGUMENT = (exp.HavingMax, exp.Limit, exp.IgnoreNulls, exp.RespectNulls)


def is_aggregate(node: exp.Expr) -> bool:
    """Whether a node is a call of an aggregate, or its FILTER."""
    return isinstance(node, exp.Filter | exp.AggFunc) and not isinstance(node, exp.Grouping | exp.GroupingId)


def law_of(node: exp.Expr) -> Law | None:
    """Return the law of the function that a call names, None where it is not in the table."""
    return (
        _BY_NAME.get(node.name.lower())
        if isinstance(node, exp.AnonymousAggFunc)
        else _BY_NODE.get(type(node))
    )


def call_of(node: exp.Expr) -> Call | None:
    """Return a call of an aggregate taken apart, None where it has no law."""
    condition = None
    if isinstance(node, exp.Filter):
        node, condition = node.this, node.expression
    if (law := law_of(node)) is None:
        return None
    is_distinct, order = False, tuple[exp.Expr, ...]()
    arguments: list[exp.Expr] = []
    pending = _arguments(node)
    while pending:
        argument = pending.pop(0)
        if isinstance(argument, exp.Order):
            order, pending = tuple(argument.expressions), [argument.this, *pending]
        elif isinstance(argument, exp.Distinct):
            is_distinct, pending = True, [*argument.expressions, *pending]
        elif isinstance(argument, _AROUND_AN_ARGUMENT):
            return None
        else:
            arguments.append(argument)
    return Call(law, node, tuple(arguments), is_distinct, order, condition)


def taken_in_order(tree: exp.Query) -> str | None:
    """Return what depends on the order in which a subquery gives its rows, None where nothing does.

    Answers of inner aggregations keep their order, and so do rows up to a LIMIT.
    """
    queries = (each.parent for each in find_all(tree, exp.Order) if each.parent is not tree)
    if not any(_orders_rows(query) for query in queries if isinstance(query, exp.Query)):
        return None
    for node in find_all(tree, exp.AggFunc):
        if (law := law_of(node)) is not None:
            call = call_of(node)
            if call is None or (not call.order and call.merge in _OF_THE_FIRST_ROWS):
                return law.name
    has_keys = any(each.args.get("on") for each in find_all(tree, exp.Distinct))
    return "DISTINCT ON" if has_keys else None


def _orders_rows(query: exp.Query) -> bool:
    if query.args.get("limit") or query.args.get("offset"):
        return False
    inner = query.unnest() if isinstance(query, exp.Subquery) else query
    own = inner.walk(prune=lambda node: node is not inner and isinstance(node, exp.Query))
    return not inner.args.get("group") and not any(is_aggregate(node) for node in own)


@lru_cache(maxsize=256)
def call_in(sql: str) -> Call | None:
    """Return the call that a text is, taken apart; None where it is none. It is shared: do not change it."""
    holder = exp.paren(sqlglot.parse_one(sql, dialect=DIALECT))
    mark_aggregates(holder)
    return call_of(holder.this)


def _arguments(node: exp.Expr) -> list[exp.Expr]:
    given = (node.args.get(name) for name in node.arg_types)
    several = (each if isinstance(each, list) else [each] for each in given)
    return [argument for arguments in several for argument in arguments if isinstance(argument, exp.Expr)]


def mark_aggregates(query: exp.Expr) -> None:
    """Change the tree so that every aggregate of the table in it is an `exp.AggFunc` by itself. In place."""
    for node in reversed(list(find_all(query, exp.Anonymous, exp.AggFunc))):  # what is inside comes first
        around = node.parent
        if isinstance(around, exp.WithinGroup):
            _take_its_order_inside(around)
        elif isinstance(around, exp.IgnoreNulls) and isinstance(node, exp.AnyValue):  # always so, to sqlglot
            around.replace(node)
        elif (marked := _marked(node)) is not None and marked is not node:
            node.replace(marked)


def _take_its_order_inside(within: exp.WithinGroup) -> None:
    """Write f(p) WITHIN GROUP (ORDER BY x) as f(x, p ORDER BY x). In place."""
    ordered, law = within.expression.expressions, law_of(within.this)
    if law is None or law.node is None or len(ordered) != 1:
        return
    arguments = [ordered[0].this.copy(), *_arguments(within.this)]
    if law.merge is not Merge.QUANTILE or ordered[0].args.get("desc"):
        arguments[-1] = exp.Order(this=arguments[-1], expressions=[ordered[0]])
    within.replace(law.node(**dict(zip(law.node.arg_types, arguments, strict=False))))


def _marked(node: exp.Expr) -> exp.Expr | None:
    """Return what stands for a call, None where it stands for itself."""
    name = (node.sql_name() if isinstance(node, exp.AggFunc) else node.name).lower()
    arguments = node.expressions if isinstance(node, exp.Anonymous) else _arguments(node)
    if (words := IN_OTHER_WORDS.get(name)) is not None:
        return _in_other_words(words, arguments)
    law = _BY_NAME.get(name) if isinstance(node, exp.Anonymous) else law_of(node) or _BY_NAME.get(name)
    if law is None:
        return None
    is_read_well = law_of(node) is law and not has_several_distinct(arguments)
    return _plain(node if is_read_well else marked_call(law.name, arguments))


def _plain(node: exp.Expr) -> exp.Expr:
    """Return max(x) for max(DISTINCT x ORDER BY y), where neither changes anything, else the call itself."""
    call = call_of(node)
    if call is None or call.merge is not call.law.merge or not (call.is_distinct or call.order):
        return node
    if call.merge is Merge.ROWS or (call.order and call.merge in _TAKEN_IN_ORDER):
        return node
    if isinstance(node, exp.AnonymousAggFunc):
        return exp.AnonymousAggFunc(this=node.this, expressions=list(call.arguments))
    return type(node)(**dict(zip(node.arg_types, call.arguments, strict=False)))


def marked_call(name: str, arguments: Sequence[exp.Expr]) -> exp.Expr:
    """Return a call of a function of the table. DISTINCT and ORDER BY stand where they are written.

    sqlglot reads f(DISTINCT x, y) as f of one argument, which is DISTINCT x, y.
    """
    law = _BY_NAME[name]
    if len(arguments) == 1 and law.node is not None and not has_several_distinct(arguments):
        return law.node(this=arguments[0])
    if not has_several_distinct(arguments):
        return exp.AnonymousAggFunc(this=name, expressions=list(arguments))
    (argument,) = arguments
    order = argument.expressions if isinstance(argument, exp.Order) else []
    first, *others = (argument.this if order else argument).expressions
    if order:
        others[-1] = exp.Order(this=others[-1], expressions=order)
    return exp.AnonymousAggFunc(this=name, expressions=[exp.Distinct(expressions=[first]), *others])


def has_several_distinct(arguments: Sequence[exp.Expr]) -> bool:
    if len(arguments) != 1:
        return False
    argument = arguments[0].this if isinstance(arguments[0], exp.Order) else arguments[0]
    return isinstance(argument, exp.Distinct) and len(argument.expressions) > 1


def _in_other_words(words: str, arguments: Sequence[exp.Expr]) -> exp.Expr:
    by_name = dict(zip("xy", arguments, strict=False))

    def filled(node: exp.Expr) -> exp.Expr:
        return by_name.get(node.name, node).copy() if isinstance(node, exp.Column) else node

    return sqlglot.parse_one(words, dialect=DIALECT).transform(filled)
