"""A plan in words: streams, statics, mode, why, and the SQL texts."""

from __future__ import annotations

from collections.abc import Iterator

from relaqs_engine.plans.plan import Around, Hoist, Method, Mode, OnlinePlan, OutputColumn, OutputKind
from relaqs_engine.plans.readable import readable_sql
from relaqs_engine.plans.refinement import Refinement

_KINDS = {
    OutputKind.KEY: "group key",
    OutputKind.ESTIMATE: "estimate with an interval",
    OutputKind.DISTINCT: "estimate between the values seen and those that may be unseen",
    OutputKind.QUANTILE: "quantile between two values of the sample",
    OutputKind.BOUND: "bound",
    OutputKind.OPAQUE: "value so far, no interval",
}
_METHODS = {
    Method.REPLICATES: "from replicates, the estimate repeated leaving out one block of the sample at a time",
    Method.CLOSED_FORM: "closed form, from sums of squares and products over each group's rows",
    Method.NONE: "none, nothing is estimated with an interval",
}
_LEGEND = (
    "In the SQL below k0, k1, … are group keys, b0, b1, … partial aggregates, and m counts rows;\n"
    "state holds what all tasks returned, merged one row per group; totals are multiplied by scale."
)


def explain(plan: OnlinePlan) -> str:
    """Return the plan as readable text, one part a paragraph."""
    text = _explained(plan)
    refinement = plan.refinement
    plans = [plan, *(stage.plan for stage in refinement.stages)] if refinement else [plan]
    for stream in {stream for each in plans for stream in each.streams}:
        text = text.replace(stream.token, f"partitions_of_{stream.table}")
    hoists = [hoist for each in plans for hoist in each.hoists] + [
        *(refinement.statics if refinement else ())
    ]
    for number, name in enumerate(dict.fromkeys(hoist.name for hoist in hoists), start=1):
        text = text.replace(name, f"static_{number}")
    return text


def _explained(plan: OnlinePlan) -> str:
    parts = [f"mode: {plan.mode.value}", *(f"why: {reason}" for reason in plan.reasons)]
    if plan.around is not None:
        return _explain_around(plan, plan.around, parts)
    if plan.mode is Mode.EXACT:
        return "\n".join([*parts, "", "exact SQL, over whole tables:", _pretty(plan.sql)]) + "\n"
    parts.append("streams: " + ", ".join(stream.table for stream in plan.streams))
    hoists, refinement = _hoists(plan), plan.refinement
    fetched = refinement.statics if refinement else ()
    statics = dict.fromkeys(table for hoist in (*hoists, *fetched) for table in hoist.tables)
    parts.append("static: " + (", ".join(statics) or "none"))
    parts.append(f"error bars: {_error_bars(plan)}")
    if refinement is not None:
        parts.append(f"cost: {_cost(refinement)}")
    parts += ["", "columns:", *(f"  {output.name}: {_kind(output, plan)}" for output in plan.outputs)]
    parts += ["", *([] if plan.returns_rows else [_LEGEND])]
    for hoist in hoists:
        parts += ["", f"{hoist.name} ({', '.join(hoist.tables)}), once per worker:", _pretty(hoist.sql)]
    return "\n".join([*parts, *(_refined(plan) if plan.refinement else _texts(plan))]) + "\n"


def _hoists(plan: OnlinePlan) -> tuple[Hoist, ...]:
    """Return what workers prepare, for stages as well, each once."""
    stages = plan.refinement.stages if plan.refinement else ()
    return tuple(dict.fromkeys([*plan.hoists, *(hoist for stage in stages for hoist in stage.plan.hoists)]))


def _texts(plan: OnlinePlan) -> Iterator[str]:
    for title, sql in (
        ("partial SQL, per task:", plan.partial_sql),
        ("merge SQL, over all partials:", plan.merge_sql),
        ("estimate SQL, after each mini-batch:", plan.estimate_sql),
        ("final SQL, after the last:", plan.final_sql),
    ):
        if sql:
            yield from ("", title, _pretty(sql))


def _refined(plan: OnlinePlan) -> Iterator[str]:
    """Yield what a refined plan does, in the order in which it is done."""
    refinement = plan.refinement
    assert refinement is not None
    for stage in refinement.stages:
        yield from ("", f"{stage.name}: {stage.title}")
        yield from (f"partial SQL of {stage.name}, per task:", _pretty(stage.plan.partial_sql))
        yield from (f"final SQL of {stage.name}:", _pretty(stage.plan.final_sql))
    for static in refinement.statics:
        yield from ("", f"{static.name} ({', '.join(static.tables)}), fetched once:", _pretty(static.sql))
    belonging, kept = refinement.belonging, refinement.kept
    if kept is not None:
        yield from ("", "partial SQL, per task:", _pretty(kept.partial_sql))
    if belonging is not None and belonging.threshold is not None:
        yield from ("", "partial SQL, per task, once the range is known:", _pretty(belonging.ranged_sql))
    if belonging is not None:
        yield from ("", "rows that count, after each mini-batch:", _pretty(belonging.sql))
    for title, sql in (
        ("merge SQL, over the rows that count:", plan.merge_sql),
        ("estimate SQL, after each mini-batch:", plan.estimate_sql),
        ("final SQL, after the last:", plan.final_sql),
    ):
        if sql:
            yield from ("", title, _pretty(sql))


def _cost(refinement: Refinement) -> str:
    """Return how a mini-batch's cost grows."""
    if refinement.kept is None:
        return "each mini-batch runs the final SQL anew, over the groups of its stages seen so far"
    if refinement.belonging is None:
        return "a mini-batch costs the same early and late"
    if refinement.threshold is None:
        return "grows with the rows seen: all candidates are kept and compared anew after each mini-batch"
    return "grows with the rows near the threshold, which are kept and compared anew after each mini-batch"


def _explain_around(plan: OnlinePlan, around: Around, parts: list[str]) -> str:
    """Return the plan of a query over answers, then the plan of each."""
    parts += ["", "columns:", *(f"  {output.name}: {_kind(output, plan)}" for output in plan.outputs)]
    parts += ["", "final SQL, over the answers below:", _pretty(around.final_sql)]
    for index, part in enumerate(around.parts):
        parts += ["", f"part_{index}, the answer of:", _pretty(part.sql), "", explain(part).rstrip()]
    return "\n".join(parts) + "\n"


def _error_bars(plan: OnlinePlan) -> str:
    if plan.groups_are_local:
        return "none needed, all rows of a group lie in one partition: a group shown is complete"
    if plan.returns_rows:
        return "none needed, a row found is final"
    return _METHODS[plan.method]


def _kind(output: OutputColumn, plan: OnlinePlan) -> str:
    if plan.groups_are_local and output.kind is not OutputKind.KEY:
        return "complete once its group is shown"
    if plan.returns_rows:
        return "exact for every row shown"
    side = {"least": " (at least)", "most": " (at most)"}.get(output.side or "", "")
    return _KINDS[output.kind] + side


def _pretty(sql: str) -> str:
    return "\n".join("  " + line for line in readable_sql(sql).splitlines())
