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

_THEIR_OWN_MERGE = (exp.Min, exp.Max, exp.LogicalAnd, exp.LogicalOr)


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
        if isinstance(node, exp.Filter | exp.AggFunc) and not isinstance(node, exp.Grouping | exp.GroupingId):
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
        call = node.this if isinstance(node, exp.Filter) else node
        if self._counts_keys(node):
            keys = [self.visit(key) for key in call.this.expressions]
            return exp.Count(this=exp.Distinct(expressions=keys))
        if isinstance(call.this, exp.Distinct | exp.Order) or call.expressions:
            self.partials = None
        elif isinstance(call, exp.Sum):
            return exp.Sum(this=self._partial(node))
        elif isinstance(call, exp.Count | exp.CountIf):
            return self._count(exp.Sum(this=self._partial(node)))
        elif isinstance(call, _THEIR_OWN_MERGE):
            return type(call)(this=self._partial(node))
        elif isinstance(call, exp.Avg):
            total, count = (
                self._partial(_with_call(node, kind(this=call.this.copy()))) for kind in (exp.Sum, exp.Count)
            )
            nothing = exp.Nullif(this=exp.Sum(this=count), expression=exp.Literal.number(0))
            return exp.paren(exp.Div(this=exp.Sum(this=total), expression=nothing))
        else:
            self.partials = None
        return exp.Null()

    def _counts_keys(self, node: exp.Expr) -> bool:
        """Whether it counts the distinct values of a key. Each group below has rows, and so has its key."""
        if not isinstance(node, exp.Count) or not isinstance(node.this, exp.Distinct) or node.expressions:
            return False
        values = node.this.expressions
        return len(values) == 1 and values[0] in self.keys

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
