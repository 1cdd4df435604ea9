"""Rule: the answer says which of its estimates are never certified before the end, and why.

An interval is certified only if no row that was not read could move the value far. That cannot be told
where nothing bounds what a row may add, as in `sum(length(comment))`. It cannot be told either where one
row of the sampled table may meet many rows of another table, because all of them then come at once. Nor is
a value certified that an estimate chooses, or one that jumps, or bends near zero, as the square of a
covariance in `regr_r2`.

**Choices.** Which outputs choose between values by an estimate, so that more rows may let them choose
otherwise:

    CASE WHEN sum(gain) > 0 THEN avg(win) ELSE avg(loss) END

Error bars come from leaving rows out, one block at a time. If the sum is 500 in the sample, and 5 less in
each of these, then all of them have the average win. Nothing tells that the sum of all rows may be -20.

**Jumps and bends.**

    hash(sum(km)) % 7       what is hashed jumps
    sum(km) / sum(gain)     gains and losses may nearly cancel, and then the ratio may be anything

Error bars come from how a value moves where a little is left out, as if it went on along a straight line.
Of 40 groups in 12 orders, 65 % of the bars of the second held (docs/decisions/0073-what-bends.md).

Last, the values of medians and the like have to fit into the memory for merged states: those of all rows
(`check_kept_values`), or, where the query may run as a whole after a sample, of one partition
(`check_first_values`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import sqlglot
from sqlglot import exp

from relaqs_engine.plans.aggregate import (
    ROWS,
    SCALE,
    SHARED_SCALE,
    Basis,
    BasisColumn,
)
from relaqs_engine.plans.plan import OutputColumn, OutputKind
from relaqs_engine.rewrite.draft import (
    Draft,
    NotOnlineError,
    Source,
    is_said,
    said,
    said_name,
)
from relaqs_engine.rewrite.outputs import sign_of_column
from relaqs_engine.rewrite.scans import met_several_times
from relaqs_engine.sql.dialect import find_all, find_first
from relaqs_engine.sql.expressions import (
    KeptSigns,
    Motion,
    Sign,
    Signs,
    Vanishing,
    asked_in_turn,
    bends,
    conditions_in,
    motion_of,
    number_of,
)
from relaqs_engine.sql.parse import DIALECT

_COMPARED_WITH_ZERO = (exp.EQ, exp.NEQ, exp.GT)
_NUMBERS_OF_ALL = (ROWS, SCALE, SHARED_SCALE)


def chooses_by_estimates(value: exp.Expr, basis: Mapping[str, BasisColumn]) -> bool:
    """Whether the value may be another one, not a near one, once an estimate has moved a little.

    Three conditions are harmless: of keys alone, whether a sum that is never negative is 0, and whether a
    value is NULL. In the last two, error bars find out: they look at what one more row would do. GREATEST,
    LEAST and ABS were taken off a value that they are around (`unfolded`).

    Args:
        value: of an output, over merged state.
        basis: the merged columns by their names.
    """
    bare, kept = value.unnest(), KeptSigns(lambda column: sign_of_column(column, basis))
    return (
        any(not _is_harmless(each, basis) for each in conditions_in(value))
        or any(each is not bare and _may_be_filled(each, basis) for each in find_all(value, exp.Coalesce))
        or any(_estimated(each, basis) for each in find_all(value, exp.Greatest, exp.Least))
        or any(
            _estimated(each, basis) and kept(each.this) is Sign.EITHER for each in find_all(value, exp.Abs)
        )
    )


def _is_harmless(condition: exp.Expr, basis: Mapping[str, BasisColumn]) -> bool:
    condition = condition.unnest()
    if not _estimated(condition, basis):
        return True
    if isinstance(condition, exp.And | exp.Or):
        return all(_is_harmless(side, basis) for side in (condition.left, condition.right))
    if isinstance(condition, exp.Not):
        return _is_harmless(condition.this, basis)
    if isinstance(condition, exp.Is):
        return isinstance(condition.expression, exp.Null)
    if not isinstance(condition, _COMPARED_WITH_ZERO) or number_of(condition.right) != 0.0:
        return False
    sign = Signs(lambda column: sign_of_column(column, basis))(condition.left)
    return len(_estimated(condition.left, basis)) == 1 and not sign & Sign.NEGATIVE


def _may_be_filled(coalesce: exp.Coalesce, basis: Mapping[str, BasisColumn]) -> bool:
    """Whether COALESCE has an estimate that may be NULL for now, other than a sum.

    The mean of no rows is NULL, and one more row with a 0 would let it be 0: that is what COALESCE often
    takes, so that error bars do not see the difference.
    """
    return any(len(_estimated(each, basis)) > 1 for each in asked_in_turn(coalesce)[0])


def _estimated(expression: exp.Expr, basis: Mapping[str, BasisColumn]) -> set[str]:
    """Return the merged columns in an expression, those left aside that count all rows."""
    names = {column.name for column in find_all(expression, exp.Column)}
    return {name for name in names if name in basis and name not in _NUMBERS_OF_ALL}


def jumps_and_bends(value: exp.Expr, basis: Mapping[str, BasisColumn]) -> Iterator[str]:
    """Yield why error bars of a value over merged state may say too little.

    Args:
        value: of an output.
        basis: the merged columns by their names.
    """
    estimates = [column for column in find_all(value, exp.Column) if column.name in basis]
    above = {id(node): node for column in estimates for node in _path(column)}
    for node in above.values():
        if motion_of(node) is Motion.JUMPS:
            yield f"{_called(node)} may jump where an estimate moves a little; its parts may be certified"
    bare, curved = value.unnest(), [node for node in above.values() if not _centres_moments(node, basis)]
    vanishing = Vanishing(lambda column: sign_of_column(column, basis), lambda column: _counts(column, basis))
    if any(bends(node, vanishing, alone=node is bare) for node in curved):
        from relaqs_engine.rewrite.smoothness import BENDS

        yield BENDS


def _counts(column: exp.Column, basis: Mapping[str, BasisColumn]) -> bool:
    """Whether a column is a number of rows, or the scale that it is multiplied by."""
    counts_rows = column.name in basis and basis[column.name].kind is Basis.COUNT
    return counts_rows or column.name in _NUMBERS_OF_ALL


def _called(node: exp.Expr) -> str:
    """Return what is computed, without its arguments: they are columns of merged state."""
    name, is_call, _ = node.sql(DIALECT).partition("(")
    return f"{name.lower()}()" if is_call and name.isidentifier() else "an operator"


def _centres_moments(node: exp.Expr, basis: Mapping[str, BasisColumn]) -> bool:
    """Whether a product moves moments to another centre, as in the kurtosis of `statistics.py`.

    Both factors may be near zero, but then it is a small part of the sum that it stands in.
    """
    if not isinstance(node, exp.Mul) or find_first(node.left, exp.Sub) is None:
        return False
    shift, moments = (
        [basis.get(each.name) for each in find_all(side, exp.Column)] for side in (node.left, node.right)
    )
    return all(each is not None and each.kind is Basis.MEAN for each in shift) and all(
        each is not None and each.is_moment for each in moments
    )


def _path(column: exp.Column) -> list[exp.Expr]:
    """Return the nodes from a column up to the value, none where it stands in a condition of CASE or IF."""
    found: list[exp.Expr] = [column]
    while (parent := found[-1].parent) is not None:
        if isinstance(parent, exp.If | exp.Case) and parent.this is found[-1]:
            return []
        found.append(parent)
    return found


def say_what_is_unbounded(draft: Draft) -> Draft:
    """Return the draft with a reason for each estimate that cannot be certified.

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
        for name in map(said_name, met_several_times(draft))
    ]
    of_all += [
        f"a group of {said_name(source.alias)} may become any number of rows, which then count all at once"
        for source in draft.streams
        if source.is_derived and find_first(source.node, exp.UDTF, exp.Explode)
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


def _reasons(output: OutputColumn, basis: dict[str, BasisColumn], sources: Sequence[Source]) -> Iterator[str]:
    if output.moves_in_steps:
        yield "it rounds inside of an expression, and so moves in steps; round the result instead"
    names = {output.total: None}
    if output.total is None:
        value = sqlglot.parse_one(output.smooth_sql, dialect=DIALECT)
        if chooses_by_estimates(value, basis):
            yield "it chooses by an estimate, and may choose otherwise at the end; its parts may be certified"
        yield from jumps_and_bends(value, basis)
        names = dict.fromkeys(column.name for column in find_all(value, exp.Column))
    for name in names:
        column = basis.get(name or "")
        if column is not None and column.is_additive and None in (column.lowest, column.highest):
            yield _unbounded(column, sources)


def _unbounded(column: BasisColumn, sources: Sequence[Source]) -> str:
    """Return why nothing bounds what a row adds to a sum, in the words of the query."""
    summed = sqlglot.parse_one(column.sql, dialect=DIALECT)
    named = {source.alias: source for source in sources}
    for each in find_all(summed, exp.Column):
        source = named.get(each.table)
        known = None if source is None or source.is_derived else source.column(each.name)
        if known is not None and known.type in ("DOUBLE", "FLOAT") and None in (known.minimum, known.maximum):
            values = "has NaN, infinity or no values, or its file does not rule them out, so nothing bounds"
            return f"{known.name} {values} what a row adds; WHERE isfinite({known.name}) does"
    call = find_first(summed, exp.AggFunc)
    inner = summed if call is None or not isinstance(call.this, exp.Expr) else call.this
    for each in find_all(inner, exp.Column):
        if not is_said(each.name):
            return "nothing bounds what a row adds to it"
        each.set("table", None)
    return f"nothing bounds {said(inner)}, which it adds up"


# The most values of its sampled tables that a query may keep, however much memory there is, because each
# mini-batch computes its answer from all of them anew. With a limit of 2 GB, states have 500 MB: two columns
# of 6 million decimals end within it, three do not.
MOST_VALUES = 12_500_000
_VALUE_BYTES = 40
# DuckDB's own state for a median and its group. 1.5 million of them do not fit into 450 MB.
_GROUP_BYTES = 300


def most_listed(draft: Draft) -> int | None:
    """Return the most values that all lists of the state may have; None where it has no lists.

    >>> most_listed(after(check_first_values, "SELECT median(price) FROM items"))
    12500000
    """
    lists = sum(column.kind is Basis.VALUES for column in draft.basis)
    if not lists:
        return None
    if draft.state_bytes is None:
        return MOST_VALUES
    left = draft.state_bytes - lists * draft.groups.expected * _GROUP_BYTES
    return min(MOST_VALUES, max(0, left // _VALUE_BYTES))


def check_first_values(draft: Draft) -> Draft:
    """Return the draft unchanged. Raises NotOnlineError where one partition has more values than are kept.

    >>> refusal(check_first_values, "SELECT median(fare) FROM trips")
    ''
    """
    return _with_few_values(draft, max)


def check_kept_values(draft: Draft) -> Draft:
    """Return the draft unchanged. Raises NotOnlineError where too many values would be kept.

    It is for what is estimated to its end. Other queries keep as many as they may, and then run as a whole.
    """
    return _with_few_values(draft, sum)


def _with_few_values(draft: Draft, of_partitions: Callable[[Iterable[int]], int]) -> Draft:
    """Return the draft. of_partitions: which rows must have few values, those of all partitions or of one."""
    most = most_listed(draft)
    if most is None:
        return draft
    layouts = [source.layout for source in draft.streams]
    rows = max(of_partitions([0, *(part.row_count for part in layout.partitions)]) for layout in layouts)
    values = rows * sum(column.kind is Basis.VALUES for column in draft.basis)
    if values > most:
        memory = "" if most == MOST_VALUES else f" within {_mib(draft.state_bytes or 0)}"
        raise NotOnlineError(f"it would keep {values:,} values; up to {most:,} are kept{memory}")
    return draft


def _mib(size_bytes: int) -> str:
    return f"{size_bytes >> 20:,} MiB"
