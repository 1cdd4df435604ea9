"""Writes the report of a folder of records: figures, tables and the page.

The page: every exhibit with its numbers and commands, in one file that needs nothing else.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
from relaqs_engine.errors import DataError

from relaqs_lab.cli.simulate import RECORDS as SIMULATIONS
from relaqs_lab.records import QueryRun, RecordFile, ScheduleRun
from relaqs_lab.records.simulated_runs import GangRun
from relaqs_lab.records.store import RUNS, SCHEDULES
from relaqs_lab.report.alone import alone
from relaqs_lab.report.exhibit import (
    NOT_GIVEN,
    Exhibit,
    Finding,
    Missing,
    Part,
    PolicyTable,
    PolicyTables,
    css_variables,
)
from relaqs_lab.report.exhibits_of_training import gangs, training_schedules
from relaqs_lab.report.predicted import predicted
from relaqs_lab.report.shared import shared

STYLE = """
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
main{max-width:920px;margin:0 auto;padding:24px 16px 64px}
h1{font-size:1.8rem;line-height:1.2;margin:.5em 0}
h2{margin:2.5em 0 .5em;border-bottom:1px solid var(--grid);padding-bottom:.2em}
h3{margin:2em 0 0}
h4{margin:1.5em 0 .5em;font-size:.95rem}
p{margin:.5em 0}
.source,.note,figcaption{color:var(--muted);font-size:.9rem}
figure{margin:1em 0}
svg{width:100%;min-width:540px;height:auto;display:block}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:.9rem;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.3em .8em .3em 0;border-bottom:1px solid var(--grid);vertical-align:top}
td:nth-child(n+2),th:nth-child(n+2){white-space:nowrap}
.policies td,.policies th{white-space:pre}
.policies td:nth-child(n+2),.policies th:nth-child(n+2){text-align:right;white-space:pre}
code{font:.85rem/1.4 ui-monospace,monospace;overflow-wrap:anywhere}
pre{background:color-mix(in srgb,var(--grid) 35%,transparent);padding:.6em .8em;border-radius:6px;
margin:.6em 0;white-space:pre-wrap}
pre span{white-space:nowrap}
nav ul{columns:2;padding-left:1.2em;font-size:.95rem}
a{color:var(--one)}
details{margin:.6em 0}
@media(max-width:600px){nav ul{columns:1}td:nth-child(n+2){white-space:normal}}
"""
NOTE = (
    "Unaudited: no figure here is comparable to official TPC-H results. A number of a paper is shown where "
    "this project knows it, else it says “not given”; machines, data and scale differ from the papers'."
)


def page(
    sections: Sequence[tuple[str, Sequence[Part]]],
    circumstances: Sequence[Mapping[str, Any]],
    out: Path,
) -> str:
    """Return the page as HTML.

    Args:
        circumstances: of the records, for the list of machines.
        out: their folder.
    """
    body = "".join(_section(title, exhibits, out) for title, exhibits in sections if exhibits)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><title>ReLAQS on TPC-H</title>'
        f"<style>{css_variables(':root')}{STYLE}</style></head><body><main>"
        f"<h1>ReLAQS on TPC-H: the thesis's experiments, measured</h1><p class=note>{escape(NOTE)}</p>"
        f"{_contents(sections)}{body}{_machines(circumstances)}</main></body></html>\n"
    )


def _contents(sections: Sequence[tuple[str, Sequence[Part]]]) -> str:
    shown = [each for _, exhibits in sections for each in exhibits if not isinstance(each, Missing)]
    links = "".join(f'<li><a href="#{each.name}">{escape(each.title)}</a></li>' for each in shown)
    return f'<nav aria-label="Contents"><ul>{links}</ul></nav>'


def _section(title: str, exhibits: Sequence[Part], out: Path) -> str:
    parts = "".join(_part(each, out) for each in exhibits)
    return f"<section><h2>{escape(title)}</h2>{parts}</section>"


def _part(part: Part, out: Path) -> str:
    if isinstance(part, Missing):
        return _missing(part, out)
    return _exhibit(part) if isinstance(part, Exhibit) else _policies(part)


def _exhibit(exhibit: Exhibit) -> str:
    label = f'<svg role="img" aria-label="{escape(exhibit.title, quote=True)}"'
    figure = exhibit.picture.svg.replace("<svg", label, 1)
    return (
        f'<article id="{exhibit.name}"><h3>{escape(exhibit.title)}</h3>'
        f"<p class=source>After: {escape(exhibit.source)}</p>"
        f'<figure><div class=wide tabindex=0 role=region aria-label="figure">{figure}</div><figcaption>'
        f"{_unbroken(exhibit.caption)}</figcaption></figure>"
        f"{_findings(exhibit.findings)}{_commands(exhibit.commands)}</article>"
    )


def _policies(exhibit: PolicyTables) -> str:
    tables = "".join(_policy_table(each, exhibit.headings) for each in exhibit.tables)
    return (
        f'<article id="{exhibit.name}"><h3>{escape(exhibit.title)}</h3>'
        f"<p class=source>After: {escape(exhibit.source)}</p><p class=note>{_unbroken(exhibit.caption)}</p>"
        f"{tables}</article>"
    )


def _policy_table(table: PolicyTable, headings: Sequence[str]) -> str:
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    rows = "".join(f"<tr>{''.join(f'<td>{_unbroken(cell)}</td>' for cell in row)}</tr>" for row in table.rows)
    return (
        f"<h4>{escape(table.title)}</h4>"
        '<div class=wide tabindex=0 role=region aria-label="policies in this setting">'
        f"<table class=policies><tr>{head}</tr>{rows}</table></div>{_commands(table.commands)}"
    )


def _findings(findings: Sequence[Finding]) -> str:
    if not findings:
        return ""
    rows = "".join(
        f"<tr><td>{_unbroken(each.what)}</td><td>{_unbroken(each.paper)}</td><td>{_unbroken(each.ours)}</td></tr>"
        for each in findings
    )
    head = "<tr><th>what</th><th>paper</th><th>here</th></tr>"
    return f'<div class=wide tabindex=0 role=region aria-label="numbers"><table>{head}{rows}</table></div>'


def _unbroken(text: str) -> str:
    """Return text as HTML in which no line ends between a number and its unit."""
    joined = re.sub(r"(?<=[\d±]) (?=[\d±%]|m?s\b)", "\N{NO-BREAK SPACE}", text)
    return escape(joined.replace(NOT_GIVEN, NOT_GIVEN.replace(" ", "\N{NO-BREAK SPACE}")))


def _commands(commands: Sequence[str]) -> str:
    """Return commands as HTML in which no line ends within the name of an option."""
    options = re.sub(r"(--[\w-]+)", r"<span>\1</span>", escape("\n".join(commands)))
    return f"<pre><code>{options}</code></pre>"


def _missing(missing: Missing, out: Path) -> str:
    command = f"{missing.command} --out {shlex.quote(str(out))}"
    return (
        f"<article><h3>{escape(missing.title)}</h3><p class=source>After: {escape(missing.source)}</p>"
        f"<p>Not measured yet; this adds it:</p>{_commands([command])}</article>"
    )


def _machines(circumstances: Sequence[Mapping[str, Any]]) -> str:
    """Return where the records were made, each place once."""
    places = dict.fromkeys(_place(each) for each in circumstances if "processor" in each)
    items = "".join(f"<li>{escape(place)}</li>" for place in places)
    return f"<section><h2>Where it was measured</h2><ul>{items}</ul></section>" if items else ""


def _place(facts: Mapping[str, Any]) -> str:
    packages = facts.get("packages", {})
    return (
        f"{facts['processor']}, {facts['cores']} cores, {facts['memory_bytes'] / 1e9:.0f} GB, Python "
        f"{facts['python']}, DuckDB {packages.get('duckdb', '?')}, {str(facts['at'])[:10]}"
    )


PAGE = "report.html"
FIGURES = "figures"


def write_report(folder: Path) -> Path:
    """Return the page made from a folder's records: beside it figures as SVG and PNG, and tables as Parquet.

    Raises DataError if there are no records, or broken ones.
    """
    runs = list(RecordFile(folder / RUNS).read(QueryRun.kind_of_record, QueryRun.of_record))
    schedules = [
        run
        for name in (SCHEDULES, SIMULATIONS)
        for run in RecordFile(folder / name).read(ScheduleRun.kind_of_record, ScheduleRun.of_record)
    ]
    elastic = list(RecordFile(folder / SIMULATIONS).read(GangRun.kind_of_record, GangRun.of_record))
    if not runs and not schedules and not elastic:
        raise DataError(
            f"{folder} has no records; make some with `relaqs tpch run --data DIR --out {folder}` and "
            f"`relaqs tpch schedule --data DIR --out {folder}`"
        )
    sections: list[tuple[str, Sequence[Part]]] = [
        ("One query alone", alone(runs)),
        ("Many jobs at once, really run", shared(schedules, "live")),
        ("Many jobs at once, simulated", shared(schedules, "simulated")),
        ("Prediction and training", [*predicted(runs), *training_schedules(schedules)]),
        ("Elastic jobs on machines", gangs(elastic)),
    ]
    _write_figures(folder / FIGURES, [each for _, found in sections for each in found])
    _write_tables(folder, runs, schedules)
    facts = [run.circumstances for records in (runs, schedules, elastic) for run in records]
    (folder / PAGE).write_text(page(sections, facts, folder), encoding="utf-8")
    return folder / PAGE


def _write_figures(folder: Path, exhibits: Sequence[Part]) -> None:
    folder.mkdir(exist_ok=True)
    for each in exhibits:
        if isinstance(each, Exhibit):
            (folder / f"{each.name}.svg").write_text(each.picture.standalone_svg, encoding="utf-8")
            (folder / f"{each.name}.png").write_bytes(each.picture.png)


def _write_tables(folder: Path, runs: Sequence[QueryRun], schedules: Sequence[ScheduleRun]) -> None:
    """Write what the records hold as two flat tables: steps of runs alone, and jobs of shared runs."""
    steps = [
        {"name": run.name, "scale": run.scale, "seed": run.seed, "run": run.run, "step": step, **row}
        for run in runs
        for step, row in enumerate(pa.table(run.steps.as_record()).to_pylist())
    ]
    jobs = [
        {
            "source": run.source,
            "policy": run.policy,
            "seed": run.seed,
            "mean_arrival_seconds": run.arrival_seconds,
            "job": name,
            "kind": kind.name.lower(),
            "arrival_seconds": arrival,
            "first_seconds": first,
            "completion_seconds": completion,
            "error_seconds": error,
            "seconds_to_70": reduced[0],
            "seconds_to_90": reduced[1],
            "seconds_to_95": reduced[2],
        }
        for run in schedules
        for name, kind, arrival, first, completion, error, reduced in zip(
            run.jobs.names,
            run.jobs.kinds,
            run.jobs.arrival_seconds,
            run.jobs.first_seconds,
            run.jobs.completion_seconds,
            run.jobs.error_seconds,
            run.jobs.reduced_seconds,
            strict=True,
        )
    ]
    for name, rows in (("steps", steps), ("jobs", jobs)):
        if rows:
            pyarrow.parquet.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")
