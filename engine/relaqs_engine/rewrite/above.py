"""Aggregates that are merged from those of finer groups, or of parts of the rows.

    SELECT k, avg(v) FROM t GROUP BY k

The average over groups that a query below has made of `t` is `sum(value_0) / sum(value_1)`, where those are
`sum(v)` and `count(v)` of each group. Some functions have no such merge. COUNT(DISTINCT v) has one where `v`
is a key of the groups below: its values are all there, to be counted above.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from relaqs_engine.rewrite.scopes import outer_columns
from relaqs_engine.sql.aggregates import Merge, call_of, is_aggregate

# What combines the values of groups below. The others have no such merge, or one of several columns.
_COMBINED_BY_ITSELF = (
    *(Merge.TOTAL, Merge.MIN, Merge.MAX, Merge.ANY),
    *(Merge.BIT_AND, Merge.BIT_OR, Merge.BIT_XOR),
)


class Above:
    """Rewrites what stands above groups, and collects what those have to give: keys, and partials.

    Attributes:
        keys: the expressions that groups below have.
        table: the name of the table of these groups.
        may_be_empty: whether the query has a row although there is no group below. A count is 0 then.
        partials: the aggregates of each group below. None where one of the query's has no merge.
    """

    def __init__(self, keys: Sequence[exp.Expr], table: str, *, may_be_empty: bool) -> None:
        self.keys = keys
        self.table = table
        self.may_be_empty = may_be_empty
        self.partials: list[exp.Expr] | None = []

    def visit(self, node: exp.Expr) -> exp.Expr:
        """Return the expression with the groups' columns in the place of keys and aggregates."""
        if node in self.keys:
            return exp.column(f"key_{self.keys.index(node)}", self.table, quoted=True)
        if is_aggregate(node):
            return self._merged(node)
        if isinstance(node, exp.Query):
            return self._asking_about_groups(node)
        node = node.copy()
        for name, child in list(node.args.items()):
            if isinstance(child, list):
                node.set(name, [self.visit(each) if isinstance(each, exp.Expr) else each for each in child])
            elif isinstance(child, exp.Expr):
                node.set(name, self.visit(child))
        return node

    def _asking_about_groups(self, query: exp.Query) -> exp.Query:
        """Return a subquery with keys in the place of the columns outside that it depends on."""
        query = query.copy()
        for column in outer_columns(query):
            if column in self.keys:
                column.replace(exp.column(f"key_{self.keys.index(column)}", self.table, quoted=True))
            else:
                self.partials = None
        return query

    def outputs(self) -> list[exp.Expr]:
        keys = [exp.alias_(key.copy(), f"key_{i}", quoted=True) for i, key in enumerate(self.keys)]
        values = self.partials or ()
        return keys + [exp.alias_(each.copy(), f"value_{i}", quoted=True) for i, each in enumerate(values)]

    def _merged(self, node: exp.Expr) -> exp.Expr:
        call = call_of(node)
        if call is None or call.order:
            self.partials = None
            return exp.Null()
        if call.merge is Merge.UNIQUE and call.arguments[0] in self.keys and call.condition is None:
            return exp.Count(this=exp.Distinct(expressions=[self.visit(call.arguments[0])]))
        if call.merge in _COMBINED_BY_ITSELF:
            return type(call.node)(this=self._partial(node))
        if call.merge is Merge.COUNT:
            return self._count(exp.Sum(this=self._partial(node)))
        if call.merge is Merge.MEAN:
            total, count = (
                self._partial(_with_call(node, kind(this=call.arguments[0].copy())))
                for kind in (exp.Sum, exp.Count)
            )
            nothing = exp.Nullif(this=exp.Sum(this=count), expression=exp.Literal.number(0))
            return exp.paren(exp.Div(this=exp.Sum(this=total), expression=nothing))
        self.partials = None
        return exp.Null()

    def _count(self, total: exp.Expr) -> exp.Expr:
        return exp.Coalesce(this=total, expressions=[exp.Literal.number(0)]) if self.may_be_empty else total

    def _partial(self, node: exp.Expr) -> exp.Expr:
        if self.partials is None:
            return exp.Null()
        if node not in self.partials:
            self.partials.append(node.copy())
        return exp.column(f"value_{self.partials.index(node)}", self.table, quoted=True)


def _with_call(node: exp.Expr, call: exp.Expr) -> exp.Expr:
    """Return the aggregate with another function, and with its FILTER."""
    if not isinstance(node, exp.Filter):
        return call
    return exp.Filter(this=call, expression=node.expression.copy())
