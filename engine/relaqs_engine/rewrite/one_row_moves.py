"""The most that one sampled row can move each total of a query over answers, as SQL.

A row falls into one group of an answer. So it moves a total over many groups by what it moves in that one,
and by no more than the largest of them. Each SUM over groups becomes a MAX over what a row could move, times
the number of groups that it may fall into. Differences become sums:

    SUM(sales - profit)  ->  1 * MAX(moves of sales + moves of profit)

What is no such total becomes infinite, which says that nothing is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sqlglot import exp

from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import quote_name
from relaqs_engine.plans.around import PartPlan
from relaqs_engine.plans.names import GROUP, GROUP_ROWS, moves_column
from relaqs_engine.plans.outputs import OutputKind
from relaqs_engine.rewrite.carve import aggregates, answer_index, sources_of
from relaqs_engine.rewrite.grouping import group_keys
from relaqs_engine.rewrite.trust import is_total_of
from relaqs_engine.sql.parse import DIALECT

_NOTHING, _UNKNOWN = "0.0::DOUBLE", "'infinity'::DOUBLE"
# From the name of a column to the SQL of what a row could move it.
_Moves: TypeAlias = Callable[[str], str]
# Into how many rows of a query one row of each sampled table may fall.
_Rows: TypeAlias = Counter[str]


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers that a query reads.

    Attributes:
        parts: their plans.
        catalog: of the tables that are sampled for them.
    """

    parts: Sequence[PartPlan]
    catalog: Catalog

    def columns_of(self, table: exp.Table) -> tuple[_Moves, _Rows] | None:
        """Return what a row could move in an answer, None where a row may have any part in it."""
        part = self.parts[answer_index(table.name)]
        if not part.leading:
            return lambda _: _NOTHING, Counter()
        if not part.is_estimated or part.groups_of_a_row is None:
            return None
        if self.catalog.table(part.leading).max_unit_rows > 1:
            return None
        estimates = (
            (i, output) for i, output in enumerate(part.outputs) if output.kind is OutputKind.ESTIMATE
        )
        totals = {output.name.lower(): moves_column(i) for i, output in estimates if output.total}
        rows = Counter({part.leading: part.groups_of_a_row})
        return _named(totals, table.alias_or_name), rows


def with_moves(query: exp.Query, answers: Answers) -> exp.Query | None:
    """Return the query with what one row could move each of its columns beside them, None where not known.

    `query` has the identity of each row as its last two columns. Its order is left out.
    """
    found = query.copy()
    for part in ("order", "limit", "offset"):
        found.set(part, None)
    return found if _add_moves(found, answers) is not None else None


def moves_of(part: PartPlan) -> list[str]:
    """Return the columns that an answer has beside its own, with what one row could move each estimate."""
    return [moves_column(i) for i, o in enumerate(part.outputs) if o.kind is OutputKind.ESTIMATE]


def _add_moves(query: exp.Expr, answers: Answers) -> _Rows | None:
    """Add the moves to a query in place, and return the rows that one row may fall into."""
    query = query.unnest()
    if isinstance(query, exp.Union):
        sides = [_add_moves(query.args[side], answers) for side in ("this", "expression")]
        return None if None in sides else sum((side for side in sides if side), Counter())
    if not isinstance(query, exp.Select) or len(sources := sources_of(query)) != 1:
        return None
    names = [name for name in query.named_selects if name not in (GROUP, GROUP_ROWS)]
    if (below := _below(sources[0], answers)) is None:
        return None
    moves, rows = below
    times = max(rows.values(), default=0) if aggregates(query) else None
    for i, item in enumerate(query.expressions[: len(names)]):
        query.select(
            f"{_moved(item.unalias(), moves, times)} AS {moves_column(i)}", dialect=DIALECT, copy=False
        )
    sets = max(1, len(group_keys(query)[1]))
    return Counter({table: count * sets for table, count in rows.items()})


def _below(source: exp.Expr, answers: Answers) -> tuple[_Moves, _Rows] | None:
    if isinstance(source, exp.Table):
        return answers.columns_of(source)
    names = source.this.named_selects
    if (rows := _add_moves(source.this, answers)) is None:
        return None
    return _named({name.lower(): moves_column(i) for i, name in enumerate(names)}, source.alias_or_name), rows


def _named(columns: dict[str, str], alias: str) -> _Moves:
    def moves(name: str) -> str:
        known = columns.get(name.lower())
        return f"{quote_name(alias)}.{known}" if known else _UNKNOWN

    return moves


def _moved(node: exp.Expr, moves: _Moves, times: int | None) -> str:
    """Return the SQL of the most that one row could move an expression.

    Args:
        node: it.
        moves: of the columns that it reads.
        times: into how many of the rows that are added up one row may fall. None where none are added up.
    """
    if is_total_of(node) and times is not None:
        return f"{times} * MAX({_moved(node.this, moves, None)})"
    if isinstance(node, exp.Column) and times is None:
        return moves(node.name)
    if isinstance(node, exp.Paren | exp.Neg | exp.Cast):
        return _moved(node.this, moves, times)
    if isinstance(node, exp.Add | exp.Sub):
        return f"({_moved(node.left, moves, times)} + {_moved(node.right, moves, times)})"
    if (
        isinstance(node, exp.Mul | exp.Div)
        and isinstance(node.right, exp.Literal)
        and not node.right.is_string
    ):
        sign = "*" if isinstance(node, exp.Mul) else "/"
        return f"({_moved(node.left, moves, times)} {sign} {node.right.sql(DIALECT)})"
    if isinstance(node, exp.Coalesce) and all(_is_zero(each) for each in node.expressions):
        return _moved(node.this, moves, times)
    return _NOTHING if _is_zero(node) else _UNKNOWN


def _is_zero(node: exp.Expr) -> bool:
    node = node.unnest()
    if isinstance(node, exp.Cast):
        return _is_zero(node.this)
    return isinstance(node, exp.Null) or (isinstance(node, exp.Literal) and node.this in ("0", "0.0"))
