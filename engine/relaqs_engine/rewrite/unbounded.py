"""Rule: the answer says which of its estimates are never certified before the end, and why.

An interval is certified only if no row that was not read could move the value far. That cannot be told where
nothing bounds what a row may add, as in `sum(length(comment))`. It cannot be told either where one row of the
sampled table may meet many rows of another table, because all of them then come at once. Nor is a value
certified that an estimate chooses (`rewrite/branches.py`), or one that jumps, or bends near zero, as the
square of a covariance in `regr_r2` (`rewrite/jumps.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

import sqlglot
from sqlglot import exp

from relaqs_engine.layouts.statistics import NEARLY_ALL
from relaqs_engine.plans.basis import BasisColumn
from relaqs_engine.plans.outputs import OutputColumn, OutputKind
from relaqs_engine.rewrite.branches import chooses_by_estimates
from relaqs_engine.rewrite.draft import Draft, Source, column_pair, conjuncts_of
from relaqs_engine.rewrite.grouping import group_keys
from relaqs_engine.rewrite.jumps import jumps_and_bends
from relaqs_engine.sql.parse import DIALECT


def say_what_is_unbounded(draft: Draft) -> Draft:
    """Return the draft with a reason for each estimate that cannot be certified.

    >>> from relaqs_engine.planning.example import after
    >>> draft = after(say_what_is_unbounded, "SELECT sum(km) AS km, sum(length(comment)) AS words FROM trips")
    >>> [output.never_certified for output in draft.outputs]
    ['', 'nothing bounds LENGTH(comment), which it adds up']
    """
    if not draft.intervals or draft.groups.are_local:
        return draft
    basis = {column.name: column for column in (*draft.basis, *draft.shared_basis)}
    of_all = [
        f"a row may meet several rows of {name}, which then count all at once; it helps to lay both tables "
        "out by the columns that join them"
        for name in map(_said_name, met_several_times(draft))
    ]
    of_all += [
        f"a group of {_said_name(source.alias)} may become any number of rows, which then count all at once"
        for source in draft.streams
        if source.is_derived and source.node.find(exp.UDTF, exp.Explode)
    ]
    estimated = {
        output: output.of_distinct.factor if output.of_distinct else output for output in draft.outputs
    }
    reasons = {
        output: why
        for output, of_sums in estimated.items()
        if of_sums.kind is OutputKind.ESTIMATE
        and (why := "; ".join([*of_all, *_reasons(of_sums, basis, draft.sources)]))
    }
    outputs = (
        replace(output, never_certified=reasons.get(output, output.never_certified))
        for output in draft.outputs
    )
    return replace(draft, outputs=tuple(outputs))


def met_several_times(draft: Draft) -> Iterator[str]:
    """Yield the tables that are read whole and have more than one row that a sampled row may meet."""
    joins = draft.select.args.get("joins") or []
    conditions = [*draft.conjuncts, *(c for join in joins for c in conjuncts_of(join.args.get("on")))]
    equated = frozenset(column for condition in conditions for column in _equated(condition))
    for source in draft.sources:
        columns = {name for alias, name in equated if alias == source.alias}
        if not source.streams and not _is_unique(source, columns):
            yield source.alias if source.layout is None else source.layout.table


def _equated(condition: exp.Expr) -> frozenset[tuple[str, str]]:
    """Return the columns, as (alias, name), that a condition surely equates with those of other tables."""
    condition = condition.unnest()
    if isinstance(condition, exp.Or):
        branches = [
            frozenset(column for part in conjuncts_of(branch) for column in _equated(part))
            for branch in condition.flatten()
        ]
        return frozenset.intersection(*branches)
    pair = column_pair(condition)
    return frozenset() if pair is None else frozenset((each.table, each.name.lower()) for each in pair)


def _is_unique(source: Source, columns: set[str]) -> bool:
    """Whether no two rows of a source agree in all of these columns, as far as the statistics tell.

    Of several columns, and in sampled tables, these are numbers of distinct values to a few percent.
    """
    if source.layout is None:
        return isinstance(source.node, exp.Subquery) and _tell_apart(columns, source.node.this)
    layout, rows = source.layout, source.layout.row_count
    found = [column for column in layout.columns if column.name.lower() in columns]
    if any(each.is_counted and each.distinct_count >= rows - each.null_count for each in found):
        return True
    if rows > 1 and len(found) == 1 and found[0].is_counted:
        return False
    return rows <= 1 or prod(each.distinct_count for each in found) >= NEARLY_ALL * rows


def _tell_apart(columns: set[str], query: exp.Expr) -> bool:
    """Whether no two rows of an aggregation, or of distinct rows, agree in all of these columns."""
    if not isinstance(query, exp.Query):
        return False
    if isinstance(query, exp.Select) and query.args.get("group"):
        keys, sets = group_keys(query)
        named = {item.unalias() for item in query.expressions if item.alias_or_name.lower() in columns}
        return not sets and named.issuperset(keys)
    distinct = query.args.get("distinct")
    is_plain = distinct is True or (isinstance(distinct, exp.Distinct) and not distinct.args.get("on"))
    return is_plain and {name.lower() for name in query.named_selects} <= columns


def _reasons(output: OutputColumn, basis: dict[str, BasisColumn], sources: Sequence[Source]) -> Iterator[str]:
    if output.moves_in_steps:
        yield "it rounds inside of an expression, and so moves in steps; round the result instead"
    value = sqlglot.parse_one(output.smooth_sql, dialect=DIALECT)
    if chooses_by_estimates(value, basis):
        yield "it chooses by an estimate, and may choose otherwise at the end; its parts may be certified"
    yield from jumps_and_bends(value, basis)
    for name in dict.fromkeys(column.name for column in value.find_all(exp.Column)):
        column = basis.get(name)
        if column is not None and column.is_additive and None in (column.lowest, column.highest):
            yield _unbounded(column, sources)


def _unbounded(column: BasisColumn, sources: Sequence[Source]) -> str:
    """Return why nothing bounds what a row adds to a sum, in the words of the query."""
    summed = sqlglot.parse_one(column.sql, dialect=DIALECT)
    named = {source.alias: source for source in sources}
    for each in summed.find_all(exp.Column):
        source = named.get(each.table)
        known = None if source is None or source.is_derived else source.column(each.name)
        if known is not None and known.type in ("DOUBLE", "FLOAT") and None in (known.minimum, known.maximum):
            return f"{known.name} has NaN, infinity or no values, so nothing bounds what a row adds"
    call = summed.find(exp.AggFunc)
    inner = summed if call is None or not isinstance(call.this, exp.Expr) else call.this
    for each in inner.find_all(exp.Column):
        if not is_said(each.name):
            return "nothing bounds what a row adds to it"
        each.set("table", None)
        each.this.set("quoted", not each.name.isidentifier())
    return f"nothing bounds {inner.sql(DIALECT)}, which it adds up"


def _said_name(name: str) -> str:
    return name if is_said(name) else "a subquery"


def is_said(name: str) -> bool:
    """Whether a name may be one of the query's, and not one that ReLAQS or DuckDB made up.

    >>> [is_said(name) for name in ("price", "_0", "b12", "stream_trips", "count_star()")]
    [True, False, False, False, False]
    """
    return re.fullmatch(r"_.*|[bkvd]\d+|stream_.*|.*[()].*", name) is None
