"""Rule: which numbers decide whether a group belongs to the answer, while those numbers are estimates.

HAVING compares estimates: its margins (left − right) decide. ORDER BY an estimate … LIMIT k ranks them: the
distance to the first group left out decides. They are estimated like outputs, and not shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from sqlglot import exp

from relaqs_engine.errors import SqlError
from relaqs_engine.plan import SCALE, Decider, OutputColumn, OutputKind
from relaqs_engine.refinement import SHARED_SCALE
from relaqs_engine.rewrite.draft import Draft, conjuncts_of
from relaqs_engine.rewrite.outputs import is_number
from relaqs_engine.rewrite.render import merged_columns
from relaqs_engine.sql.parse import DIALECT

_COMPARISONS = (exp.GT, exp.GTE, exp.LT, exp.LTE, exp.EQ, exp.NEQ)


def decide_membership(draft: Draft) -> Draft:
    """Return the draft with its deciders, or knowing that membership cannot be told before the end."""
    if draft.returns_rows or draft.estimate_tree is None:
        return draft
    deciders = [*_margins(draft), *_ranking(draft)]
    undecidable = any(decider is None for decider in deciders)
    return replace(
        draft,
        membership_is_opaque=undecidable,
        deciders=() if undecidable else tuple(decider for decider in deciders if decider is not None),
    )


def keep_numeric_deciders(draft: Draft, types: Mapping[str, str]) -> Draft:
    """Return the draft, its membership opaque where a decider is no number: text has no distance."""
    columns = merged_columns(draft, types)
    for decider in draft.deciders:
        if not _is_numeric(draft, f"SELECT {decider.value.estimate_sql} FROM (SELECT {columns})"):
            return replace(draft, deciders=(), membership_is_opaque=True)
    return draft


def _is_numeric(draft: Draft, sql: str) -> bool:
    try:
        return all(is_number(type_) for _, type_ in draft.binder.describe(sql))
    except SqlError:
        return False


def _margins(draft: Draft) -> Iterator[Decider | None]:
    """Yield what each condition of HAVING leaves to its threshold; None where it is no comparison."""
    assert draft.estimate_tree is not None
    having = draft.estimate_tree.args.get("having")
    for condition in conjuncts_of(having.this if having else None):
        if not _estimates(draft, condition):
            continue
        if isinstance(condition, exp.Between):
            yield _decider(draft, _difference(condition.this, condition.args["low"]), ranks=False)
            yield _decider(draft, _difference(condition.this, condition.args["high"]), ranks=False)
        elif isinstance(condition, _COMPARISONS):
            yield _decider(draft, _difference(condition.left, condition.right), ranks=False)
        else:
            yield None


def _ranking(draft: Draft) -> Iterator[Decider | None]:
    """Yield what the answer is ranked by, where LIMIT cuts the ranking off."""
    assert draft.estimate_tree is not None
    tree = draft.estimate_tree
    order = tree.args.get("order")
    if not tree.args.get("limit") or order is None:
        return
    value = order.expressions[0].this
    if isinstance(value, exp.Column) and value.name[:1] == "e" and value.name[1:].isdigit():
        value = tree.expressions[int(value.name[1:])].unalias()
    if _estimates(draft, value):
        yield None if tree.args.get("offset") else _decider(draft, value.copy(), ranks=True)


def _estimates(draft: Draft, expression: exp.Expr) -> bool:
    """Whether anything but group keys occurs in it."""
    keys = {f"k{i}" for i in range(len(draft.keys))}
    return any(not column.table and column.name not in keys for column in expression.find_all(exp.Column))


def _difference(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    return exp.Sub(this=exp.paren(left.copy()), expression=exp.paren(right.copy()))


def _decider(draft: Draft, value: exp.Expr, *, ranks: bool) -> Decider | None:
    """Return the decider, or None where its value is not an estimate with a standard error."""
    additive = {column.name for column in (*draft.basis, *draft.shared_basis) if column.is_additive}
    keys = {f"k{i}" for i in range(len(draft.keys))}
    used = {column.name for column in value.find_all(exp.Column)} - keys - {SCALE, SHARED_SCALE}
    if not used <= additive:
        return None
    return Decider(OutputColumn("", OutputKind.ESTIMATE, "DOUBLE", value.sql(DIALECT)), ranks)
