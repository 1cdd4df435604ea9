"""A plan in words: streams, statics, mode, why, and the SQL texts."""

from __future__ import annotations

import sqlglot

from relaqs_engine.plan import Around, Mode, OnlinePlan, OutputColumn, OutputKind
from relaqs_engine.sql.parse import DIALECT

_KINDS = {
    OutputKind.KEY: "group key",
    OutputKind.ESTIMATE: "estimate with an interval",
    OutputKind.DISTINCT: "estimate between the values seen and those that may be unseen",
    OutputKind.BOUND: "bound",
    OutputKind.OPAQUE: "value so far, no interval",
}


def explain(plan: OnlinePlan) -> str:
    """Return the plan as readable text, one part a paragraph."""
    parts = [f"mode: {plan.mode.value}", *(f"why: {reason}" for reason in plan.reasons)]
    if plan.around is not None:
        return _explain_around(plan, plan.around, parts)
    if plan.mode is Mode.EXACT:
        return "\n".join([*parts, "", "exact SQL:", _pretty(plan.exact_sql)]) + "\n"
    parts.append("streams: " + ", ".join(stream.table for stream in plan.streams))
    statics = [table for hoist in plan.hoists for table in hoist.tables]
    parts.append("static: " + (", ".join(statics) if statics else "none"))
    parts.append(f"error bars: {plan.method.value}" + (", groups are local" if plan.groups_are_local else ""))
    parts += ["", "columns:", *(f"  {output.name}: {_kind(output)}" for output in plan.outputs)]
    for hoist in plan.hoists:
        parts += ["", f"{hoist.name} ({', '.join(hoist.tables)}), once per worker:", _pretty(hoist.sql)]
    for title, sql in (
        ("partial SQL, per task:", plan.partial_sql),
        ("merge SQL, over all partials:", plan.merge_sql),
        ("estimate SQL, after each mini-batch:", plan.estimate_sql),
        ("final SQL, after the last:", plan.final_sql),
    ):
        if not sql:
            continue
        parts += ["", title, _pretty(sql)]
    return "\n".join(parts) + "\n"


def _explain_around(plan: OnlinePlan, around: Around, parts: list[str]) -> str:
    """Return the plan of a query over answers, then the plan of each."""
    parts += ["", "columns:", *(f"  {output.name}: {_kind(output)}" for output in plan.outputs)]
    parts += ["", "final SQL, over the answers below:", _pretty(around.final_sql)]
    for index, part in enumerate(around.parts):
        parts += ["", f"part_{index}, the answer of:", _pretty(part.sql), "", explain(part).rstrip()]
    return "\n".join(parts) + "\n"


def _kind(output: OutputColumn) -> str:
    side = {"least": " (at least)", "most": " (at most)"}.get(output.side or "", "")
    return _KINDS[output.kind] + side


def _pretty(sql: str) -> str:
    text = sqlglot.parse_one(sql, dialect=DIALECT).sql(DIALECT, pretty=True)
    return "\n".join("  " + line for line in text.splitlines())
