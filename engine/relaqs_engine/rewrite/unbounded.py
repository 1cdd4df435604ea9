"""Rule: the answer says which of its estimates are never certified before the end, and why.

An interval is certified only if no row that was not read could move the value far. Where nothing bounds what
a row may add, as of `sum(length(comment))`, that cannot be told.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import sqlglot
from sqlglot import exp

from relaqs_engine.plan import BasisColumn, OutputColumn, OutputKind
from relaqs_engine.rewrite.draft import Draft
from relaqs_engine.sql.parse import DIALECT


def say_what_is_unbounded(draft: Draft) -> Draft:
    """Return the draft with a note for each estimate that cannot be certified."""
    if draft.returns_rows or not draft.intervals or draft.groups_are_local:
        return draft
    basis = {column.name: column for column in (*draft.basis, *draft.shared_basis)}
    reasons = {
        output: why
        for output in draft.outputs
        if output.kind is OutputKind.ESTIMATE and (why := "; ".join(_reasons(output, basis)))
    }
    notes = [f"{output.name} is not certified before the end: {why}" for output, why in reasons.items()]
    outputs = [replace(output, certifiable=output not in reasons) for output in draft.outputs]
    return replace(draft, outputs=tuple(outputs), notes=(*draft.notes, *notes))


def _reasons(output: OutputColumn, basis: dict[str, BasisColumn]) -> Iterator[str]:
    if output.moves_in_steps:
        yield "it rounds inside of an expression, and moves in steps"
    value = sqlglot.parse_one(output.smooth_sql, dialect=DIALECT)
    for name in dict.fromkeys(column.name for column in value.find_all(exp.Column)):
        column = basis.get(name)
        if column is not None and column.is_additive and None in (column.lowest, column.highest):
            yield f"nothing bounds what a row adds to {column.sql}"
