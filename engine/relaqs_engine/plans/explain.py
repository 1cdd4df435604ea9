"""A plan in words: streams, statics, mode, why, and the SQL texts. Each kind has its own part here.

SQL is shown as people read it: lines that fit, names without needless quotes, file lists cut short.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import singledispatch

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB

from relaqs_engine.plans.aggregate import HeavyGroups, MergePlan, MergeTexts, RowsPlan
from relaqs_engine.plans.composite import AroundPlan, OuterRows, RefinedPlan, SampledThenExact, what_is_missed
from relaqs_engine.plans.costly import CostlyPlan
from relaqs_engine.plans.plan import Hoist, Method, OnlinePlan, OutputColumn, OutputKind, Stream, WholePlan
from relaqs_engine.sql.dialect import DIALECT, find_all
from relaqs_engine.sql.read import tree_of

MOST_FILES = 2  # named in a list of files
WIDTH = 100  # of a line, as far as parentheses decide it

_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*$")
_BROKEN_PARENTHESES = re.compile(r"\(\n\s*([^()\n]*(?:\([^()\n]*\)[^()\n]*)*)\n\s*\)")


def readable_sql(sql: str) -> str:
    """Return the statement laid out for reading, without comments. It may not run any more as it stands."""
    tree = tree_of(sql)
    for name in find_all(tree, exp.Identifier):
        if _PLAIN_NAME.match(name.name) and name.name not in DuckDB.Generator.RESERVED_KEYWORDS:
            name.set("quoted", False)
    for files in find_all(tree, exp.Array):
        _cut_short(files)
    return _joined(tree.sql(DIALECT, pretty=True, comments=False, max_text_width=WIDTH))


def _cut_short(files: exp.Array) -> None:
    """Leave the first of many files, and how many more there are."""
    names = files.expressions
    if len(names) > MOST_FILES and all(isinstance(name, exp.Literal) and name.is_string for name in names):
        more = exp.Literal.string(f"… {len(names) - 1} more")
        files.set("expressions", [names[0], more])


def _joined(text: str) -> str:
    """Return the text with short parentheses on one line each, from the inside out."""

    def join(match: re.Match[str]) -> str:
        one_line = f"({match[1].strip()})"
        return one_line if len(one_line) <= WIDTH else match[0]

    while (shorter := _BROKEN_PARENTHESES.sub(join, text)) != text:
        text = shorter
    return text


_KINDS = {
    OutputKind.KEY: "group key",
    OutputKind.ESTIMATE: "estimate with an interval",
    OutputKind.DISTINCT: "estimate between the values seen and those that may be unseen",
    OutputKind.OF_DISTINCT: "estimate by the intervals of COUNT(DISTINCT) and of what is summed",
    OutputKind.QUANTILE: "quantile between two values of the sample",
    OutputKind.BOUND: "bound",
    OutputKind.OPAQUE: "value so far, no interval",
}
_METHODS = {
    Method.REPLICATES: "from replicates, the estimate repeated leaving out one block of the sample at a time",
    Method.CLOSED_FORM: "closed form, from sums of squares and products over each group's rows",
    Method.NONE: "none, nothing is estimated with an interval",
}
_COMPLETE_GROUPS = "none needed, all rows of a group lie in one partition: a group shown is complete"
_LEGEND = (
    "In the SQL below k0, k1, … are group keys, b0, b1, … partial aggregates, and m counts rows;\n"
    "state holds what all tasks returned, merged one row per group; totals are multiplied by scale."
)


def explain(plan: OnlinePlan) -> str:
    """Return the plan as readable text, one part a paragraph."""
    text = _explained(plan)
    head = [f"mode: {plan.mode.value}", *(f"why: {reason}" for reason in plan.reasons)]
    return "\n".join([*head, *text]) + "\n"


@singledispatch
def _explained(plan: OnlinePlan) -> Iterator[str]:
    """Yield what is said of a plan after its mode and the reasons. Each kind has its own words."""
    raise TypeError(f"{type(plan).__name__} is no kind of plan that has an explanation")


@_explained.register
def _costly(plan: CostlyPlan) -> Iterator[str]:
    query, rows = plan.query, plan.query.rows
    if rows is None:
        yield "error bars: from the units that were asked, a random sample of each stratum"
    yield from (
        f"asks: {call.function}({', '.join(call.arguments)}) AS {call.answer}" for call in query.calls
    )
    if rows is None:
        yield f"counts where: {query.condition}"
        yield from (f"sum b{i}: {each}" for i, each in enumerate(query.sums))
        yield from _columns(plan.outputs, (_KINDS[output.kind] for output in plan.outputs))
    else:
        yield f"lists where: {query.condition}"
        first = "by the order of the answer" if rows.order else "the most likely first"
        yield f"asks in turn: {'all rows' if rows.most is None or rows.is_ordered_by_answers else first}"
    yield from _titled("SQL of the rows that may count:", query.frame_sql)


@_explained.register
def _merge(plan: MergePlan) -> Iterator[str]:
    bars = _COMPLETE_GROUPS if plan.groups_are_local else _METHODS[plan.method]
    kinds = (_kind_in_groups(output, plan.groups_are_local) for output in plan.outputs)
    text = [
        *_reads(plan.streams, plan.hoists),
        f"error bars: {bars}",
        *_heavy_groups(plan.partial.heavy),
        *_columns(plan.outputs, kinds),
        *("", _LEGEND),
        *_hoisted(plan.hoists),
        *_titled("partial SQL, per task:", plan.partial.sql),
        *_merged(plan.texts, "all partials"),
    ]
    yield from _named(text, plan.streams, plan.hoists)


def _heavy_groups(heavy: HeavyGroups | None) -> Iterator[str]:
    """Yield what is known of a ranking's groups early."""
    if heavy is not None:
        yield f"ranking: the heaviest groups are read early, and all others total at most {heavy.most:,.6g}"


@_explained.register
def _rows(plan: RowsPlan) -> Iterator[str]:
    text = [
        *_reads(plan.streams, plan.hoists),
        "error bars: none needed, a row found is final",
        *_columns(plan.outputs, ("exact for every row shown" for _ in plan.outputs)),
        "",
        *_hoisted(plan.hoists),
        *_titled("partial SQL, per task:", plan.partial.sql),
        *_titled("final SQL, after the last:", plan.final_sql),
    ]
    yield from _named(text, plan.streams, plan.hoists)


@_explained.register
def _whole(plan: WholePlan) -> Iterator[str]:
    yield from _titled("exact SQL, over whole tables:", plan.sql)


@_explained.register
def _sampled_then_exact(plan: SampledThenExact) -> Iterator[str]:
    """Yield how the sample is estimated from, then how the query runs at the end."""
    if plan.summarized:
        yield from _columns(plan.outputs, map(_kind, plan.outputs))
        yield from _titled("sample, of which each value becomes a cell:", plan.sample.sql)
        yield from ("", explain(plan.sample).rstrip())
    else:
        if plan.sizes:
            yield what_is_missed(plan.sizes[-1], len(plan.groups))
        yield from _merge(plan.sample)
    yield from _titled("exact SQL, over whole tables:", plan.whole.sql)


@_explained.register
def _around(plan: AroundPlan) -> Iterator[str]:
    """Yield the plan of a query over answers, then the plan of each."""
    yield from _columns(plan.outputs, map(_kind, plan.outputs))
    yield from _titled("final SQL, over the answers below:", plan.texts.final)
    for index, part in enumerate(plan.parts):
        yield from _titled(f"part_{index}, the answer of:", part.sql)
        yield from ("", explain(part).rstrip())


@_explained.register
def _refined(plan: RefinedPlan) -> Iterator[str]:
    """Yield what a refined plan does, in the order in which it is done."""
    of_stages = (hoist for stage in plan.stages for hoist in stage.plan.hoists)
    hoists = tuple(dict.fromkeys([*plan.hoists, *of_stages]))
    bars = _COMPLETE_GROUPS if plan.groups_are_local else _METHODS[plan.method]
    kinds = (_kind_in_groups(output, plan.groups_are_local) for output in plan.outputs)
    text = [
        *_reads(plan.streams, hoists),
        f"error bars: {bars}",
        f"cost: {_cost(plan)}",
        *_columns(plan.outputs, kinds),
        *("", _LEGEND),
        *_hoisted(hoists),
        *_stages(plan),
        *_outer(plan.outer),
    ]
    yield from _named(text, plan.streams, hoists)


def _stages(plan: RefinedPlan) -> Iterator[str]:
    for stage in plan.stages:
        yield from ("", f"{stage.name}: {stage.title}")
        yield from (f"partial SQL of {stage.name}, per task:", _pretty(stage.plan.partial.sql))
        yield from (f"final SQL of {stage.name}:", _pretty(stage.plan.texts.final))


def _outer(outer: OuterRows) -> Iterator[str]:
    yield from _titled("partial SQL, per task:", outer.kept.partial.sql)
    if outer.belonging is not None:
        ranged = "partial SQL, per task, once the range is known:"
        yield from _titled(ranged, outer.belonging.ranged_sql)
        yield from _titled("rows that count, after each mini-batch:", outer.belonging.sql)
    yield from _merged(outer.plan.texts, "the rows that count")


def _cost(plan: RefinedPlan) -> str:
    """Return how a mini-batch's cost grows."""
    if plan.outer.belonging is None:
        return "a mini-batch costs the same early and late"
    if plan.outer.threshold is None:
        return "grows with the rows seen: all candidates are kept and compared anew after each mini-batch"
    return "grows with the rows near the threshold, which are kept and compared anew after each mini-batch"


def _reads(streams: Iterable[Stream], statics: Iterable[Hoist]) -> Iterator[str]:
    tables = dict.fromkeys(table for static in statics for table in static.tables)
    yield "streams: " + ", ".join(stream.table for stream in streams)
    yield "static: " + (", ".join(tables) or "none")


def _columns(outputs: Iterable[OutputColumn], kinds: Iterable[str]) -> Iterator[str]:
    yield from ("", "columns:")
    for output, kind in zip(outputs, kinds, strict=True):
        yield f"  {output.name}: " + "; ".join(filter(None, (kind, output.remark)))


def _hoisted(hoists: Iterable[Hoist]) -> Iterator[str]:
    for hoist in hoists:
        yield from _titled(f"{hoist.name} ({', '.join(hoist.tables)}), once per worker:", hoist.sql)


def _merged(texts: MergeTexts, merged: str) -> Iterator[str]:
    yield from _titled(f"merge SQL, over {merged}:", texts.merge)
    yield from _titled("estimate SQL, after each mini-batch:", texts.estimate)
    yield from _titled("final SQL, after the last:", texts.final)


def _titled(title: str, sql: str) -> Iterator[str]:
    if sql:
        yield from ("", title, _pretty(sql))


def _named(lines: Iterable[str], streams: Iterable[Stream], hoists: Iterable[Hoist]) -> Iterator[str]:
    """Yield the lines with names that people read in the place of digests."""
    names = {stream.token: f"partitions_of_{stream.table}" for stream in streams}
    found = dict.fromkeys(hoist.name for hoist in hoists)
    names |= {name: f"static_{number}" for number, name in enumerate(found, start=1)}
    for line in lines:
        for name, readable in names.items():
            line = line.replace(name, readable)
        yield line


def _kind_in_groups(output: OutputColumn, groups_are_local: bool) -> str:
    is_complete = groups_are_local and output.kind is not OutputKind.KEY
    return "complete once its group is shown" if is_complete else _kind(output)


def _kind(output: OutputColumn) -> str:
    side = {"least": " (at least)", "most": " (at most)"}.get(output.side or "", "")
    return _KINDS[output.kind] + side


def _pretty(sql: str) -> str:
    return "\n".join("  " + line for line in readable_sql(sql).splitlines())
