"""Rewrite cases as SQL files: a query, then what was recorded of its plan.

    -- shows: hoists, partial           parts recorded for each case of the file, besides mode and outputs
    --? What the case is about
    SELECT ...;
    --> mergeable, streams lineitem; ...
    SELECT ...;                         each part under its name

A new case is its `--?` line and its query. `RELAQS_RECORD=1 python -m pytest tests/engine/rewrite` records
the rest, which is then to be read: a recording says what is, not what is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import sqlglot
from relaqs_engine.plans.aggregate import MergePlan, RowsPlan
from relaqs_engine.plans.composite import AroundPlan, RefinedPlan
from relaqs_engine.plans.plan import OnlinePlan, OutputColumn, WholePlan
from relaqs_engine.sql.parse import DIALECT

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "rewrite"
SHOWS = "-- shows: "
TITLE = "--? "
RECORDED = "--> "


@dataclass(frozen=True, slots=True)
class Case:
    """One query and the text recorded of its plan. shows: which parts of a mergeable plan are recorded."""

    file: Path
    title: str
    query: str
    recorded: str
    shows: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.file.stem}: {self.title}"


def all_cases() -> list[Case]:
    return [case for file in sorted(FOLDER.glob("*.sql")) for case in read_cases(file)]


def read_cases(file: Path) -> Iterator[Case]:
    head, *blocks = ("\n" + file.read_text(encoding="utf-8")).split("\n" + TITLE)
    shows = next(line for line in head.splitlines() if line.startswith(SHOWS))
    parts = tuple(part for part in shows.removeprefix(SHOWS).split(", ") if part)
    for block in blocks:
        title, rest = block.split("\n", 1)
        query, _, recorded = rest.partition("\n" + RECORDED)
        yield Case(file, title, query.strip().removesuffix(";"), RECORDED + recorded.strip(), parts)


def write_cases(file: Path, cases: list[Case]) -> None:
    head = ("\n" + file.read_text(encoding="utf-8")).split("\n" + TITLE)[0].strip()
    blocks = [f"{TITLE}{case.title}\n{case.query};\n{case.recorded}" for case in cases]
    file.write_text("\n\n".join([head, *blocks]) + "\n", encoding="utf-8")


def recording(plan: OnlinePlan, shows: tuple[str, ...]) -> str:
    """Return what is recorded of a plan: facts as comments, SQL as statements."""
    if isinstance(plan, WholePlan):
        facts = f"{RECORDED}exact, because " + "; ".join(plan.reasons)
        return "\n".join([facts, *([_pretty(plan.exact_sql, plan)] if "exact" in shows else [])])
    facts = f"{RECORDED}{plan.mode.value}, streams {', '.join(s.table for s in plan.streams)}"
    notes = [plan.method.value, *_notes(plan)]
    lines = [f"{facts}; {', '.join(notes)}"]
    lines += [f"{RECORDED}{output.name}: {_described(output)}" for output in plan.outputs]
    for title, sql in _parts(plan, shows):
        lines += [f"{RECORDED}{title}", _pretty(sql, plan)]
    return "\n".join(lines)


def _notes(plan: OnlinePlan) -> Iterator[str]:
    if isinstance(plan, AroundPlan):
        yield f"around {len(plan.parts)}"
    if plan.groups_are_local:
        yield "groups are local"
    merged = _merged(plan)
    if merged is not None and merged.bars.known_totals:
        yield f"the manifest has {', '.join(name for name, _ in merged.bars.known_totals)}"
    if plan.expected_groups > 1:
        yield f"about {plan.expected_groups:,} groups, {1 if merged is None else merged.block_count} blocks"


def _merged(plan: OnlinePlan) -> MergePlan | None:
    """Return how the groups of the answer are merged, None where they are not merged by one aggregation."""
    if isinstance(plan, RefinedPlan):
        return plan.outer.plan
    return plan if isinstance(plan, MergePlan) else None


def _described(output: OutputColumn) -> str:
    extra = [output.total and f"total of {output.total}", output.side and f"at {output.side}"]
    return " ".join([output.kind.value, output.type, *(f"({text})" for text in extra if text)])


def _parts(plan: OnlinePlan, shows: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for hoist in plan.hoists if "hoists" in shows else ():
        yield f"{_readable(hoist.name, plan)} of {', '.join(hoist.tables)}", hoist.sql
    for title, sql in _texts(plan):
        if title in shows and sql:
            yield title, sql
    if isinstance(plan, RefinedPlan) and "stages" in shows:
        yield from _refined_parts(plan)


def _texts(plan: OnlinePlan) -> Iterator[tuple[str, str]]:
    match plan:
        case RowsPlan():
            yield from (("partial", plan.partial.sql), ("final", plan.final_sql))
        case AroundPlan():
            yield from (("estimate", plan.texts.estimate), ("final", plan.texts.final))
    if (merged := _merged(plan)) is not None:
        yield from (("partial", merged.partial.sql), ("partial by block", merged.partial.by_block_sql))
        yield from (("merge", merged.texts.merge), ("estimate", merged.texts.estimate))
        yield "final", merged.texts.final


def _refined_parts(plan: RefinedPlan) -> Iterator[tuple[str, str]]:
    for stage in plan.stages:
        yield f"{stage.name}: {stage.title}", stage.plan.partial.sql
    yield "kept", plan.outer.kept.partial.sql
    if (belonging := plan.outer.belonging) is not None:
        yield "rows that count", belonging.sql
        if belonging.threshold is not None:
            yield "kept within a range", belonging.ranged_sql


def _pretty(sql: str, plan: OnlinePlan) -> str:
    text = sqlglot.parse_one(sql, dialect=DIALECT).sql(DIALECT, pretty=True, max_text_width=100)
    return _readable(text, plan) + ";"


def _readable(text: str, plan: OnlinePlan) -> str:
    """Return the text with hoists numbered and streams named by their tables, in the place of digests."""
    refined = plan if isinstance(plan, RefinedPlan) else None
    stages = [hoist for stage in refined.stages for hoist in stage.plan.hoists] if refined else []
    for number, hoist in enumerate(dict.fromkeys([*plan.hoists, *stages])):
        text = text.replace(hoist.name, f"hoist_{number}")
    for stream in plan.streams:
        text = text.replace(stream.token, f"stream_{stream.table}")
    return text
