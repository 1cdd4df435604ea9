"""Runs the cases of a study, several at once, keeps each as soon as it is there, and prints them.

They are printed as tables of policies side by side, for people, or as rows for other programs. `relaqs
tpch schedule` and a report show the same.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, TypeVar, cast, get_args

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from relaqs.cli.parameters import command_words
from relaqs.cli.reading import progress_bar
from relaqs.executors.threads import usable_cores
from relaqs.policies.registry import ALIASES, PolicyError
from relaqs_lab.records import RecordFile, circumstances
from relaqs_lab.records.comparison import Figure, PolicyRow, PolicyRun, Row, compare, settings
from relaqs_lab.records.schedule_run import REDUCTIONS, ScheduleRun
from relaqs_lab.records.store import json_value
from relaqs_lab.simulation.study import Case, run_case
from relaqs_lab.simulation.workload import EarlyStops

WIDTH = 120  # columns of a table where no terminal says how many there are


@dataclass(frozen=True, slots=True)
class FigureColumn:
    """Which figure of a policy stands in a column, and how.

    Attributes:
        heading: of the column.
        measure: the figure's name.
        form: of the number, as in an f-string.
        scale: what the figure is multiplied by first, 100 for shares in percent.
        unit: stands behind it.
    """

    heading: str
    measure: str
    form: str
    scale: float = 1.0
    unit: str = ""

    def cell(self, row: PolicyRow) -> str:
        """Return what stands in that column of a row."""
        return figure_cell(row.figures[self.measure], self.scale, self.form, self.unit)


def figure_cell(figure: Figure, scale: float, form: str, unit: str = "") -> str:
    """Return a mean and its standard error in a cell; a dash where the mean is not known."""
    return "–" if figure.mean != figure.mean else both_parts(figure, scale, form) + unit


def both_parts(figure: Figure, scale: float, form: str) -> str:
    """Return a mean and its standard error as people read them; the mean alone where there is one seed."""
    mean = f"{figure.mean * scale:{form}}"
    if figure.standard_error != figure.standard_error:
        return mean
    return f"{mean} ± {figure.standard_error * scale:{form}}"


def named_policies(text: str, make: Callable[[str], object], example: str) -> list[str]:
    """Return the policies named in a comma-separated list, each once.

    Args:
        make: makes a policy of a name, or raises PolicyError with the names that are accepted.
        example: of such a list.

    Raises:
        BadParameter: of --policies.
    """
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise click.BadParameter(f"no policy is named; give some, e.g. {example}", param_hint="--policies")
    for name in names:
        try:
            make(name)
        except PolicyError as error:
            raise click.BadParameter(str(error), param_hint="--policies") from error
    return names


def policy_cells(row: PolicyRow, columns: Sequence[FigureColumn]) -> tuple[str, ...]:
    """Return the cells of a policy's row, its name first."""
    return (row.policy, *(column.cell(row) for column in columns))


def print_policies(
    rows: Sequence[PolicyRow],
    output: str,
    *,
    setting: str,
    columns: Sequence[FigureColumn],
    caption: str,
    **more: object,
) -> None:
    """Print the policies of one setting.

    Args:
        output: `table`, or anything else for one JSON object a row: each figure, and its standard error.
        setting: what it is, in a line.
        columns: of the table.
        caption: what stands below the table.
        more: is in each JSON object, too.
    """
    if output == "table":
        table = Table(
            title=setting, box=SIMPLE_HEAD, caption=caption, caption_justify="left", padding=(0, 1, 0, 0)
        )
        table.add_column("policy", no_wrap=True)
        for column in columns:
            table.add_column(column.heading, justify="right")
        for row in rows:
            table.add_row(*policy_cells(row, columns))
        console().print(table)
        return
    for row in rows:
        errors = {f"{name}_error": figure.standard_error for name, figure in row.figures.items()}
        means = {name: figure.mean for name, figure in row.figures.items()}
        of_row = {"policy": row.policy, "seeds": list(row.seeds), **means, **errors}
        print_json({"setting": setting, **more, **of_row})


def print_json(values: Mapping[str, object]) -> None:
    """Print an object in a line. What is not a number becomes null."""
    click.echo(json.dumps(json_value(values), allow_nan=False))


def console(width: int = WIDTH) -> Console:
    """Return where tables go: as wide as the terminal, or of so many columns where there is none."""
    return Console() if sys.stdout.isatty() else Console(width=width)


def seeds_of(runs: Sequence[PolicyRun]) -> str:
    """Return how many seeds runs have, in words."""
    seeds = len({run.seed for run in runs})
    return f"{seeds} seed{'' if seeds == 1 else 's'}"


CAPTION = (
    "error: the integral of a job's true error over time, where the error before the first result, and at "
    "worst, is 1; s to x %: from a job's arrival until its error is reduced by x % for good; means over jobs "
    "and seeds, changes relative to fair sharing (± standard error over seeds). crossing: the last reduction "
    "before the policy falls behind fair sharing. worst job: its time to 90 % relative to fair's."
)
HEADINGS = (
    "policy", "error, s", *(f"s to {level:.0%}" for level in REDUCTIONS), "crossing", "worst job", "ms a plan"
)  # fmt: skip


def tables(runs: Sequence[ScheduleRun]) -> Iterator[Table]:
    """Yield one table a setting: a row for each policy."""
    for group in settings(runs):
        yield _table(compare(group), title_of(group))


def title_of(runs: Sequence[ScheduleRun]) -> str:
    """Return what a setting is, in a line; or several that differ in arrivals alone. Loads are means."""
    run, seeds = runs[0], {each.seed for each in runs}
    loads: dict[str, list[float]] = {}
    for each in runs:
        loads.setdefault(f"{each.arrival_seconds:g}", []).append(each.load)
    cap = "" if math.isinf(run.cores_most) else f", at most {run.cores_most:g} a job"
    every = "given arrivals" if math.isnan(run.arrival_seconds) else f"one every {either(list(loads))} s"
    load = either([f"{sum(values) / len(values):.2g}" for values in loads.values()])
    counted = "1 seed" if len(seeds) == 1 else f"{len(seeds)} seeds"
    return (
        f"{run.source}: {len(run.jobs.names):,} jobs, {every}, {run.capacity_cores:,.0f} cores{cap}, "
        f"load {load} ({run.workload}), {counted}"
    )


def either(words: Sequence[str]) -> str:
    """Return words as a sentence lists them: "10, 40 or 120"."""
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _table(rows: Sequence[Row], title: str) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, caption=CAPTION, caption_justify="left", padding=(0, 1, 0, 0))
    for heading in HEADINGS:
        is_name = heading == HEADINGS[0]
        table.add_column(heading, justify="left" if is_name else "right", no_wrap=is_name)
    for row in rows:
        table.add_row(*cells(row))
    return table


def cells(row: Row) -> tuple[str, ...]:
    """Return a row as people read it, one text for each of HEADINGS; some have two lines."""
    reduced = [both(seconds, change) for seconds, change in zip(row.reduced, row.reduced_change, strict=True)]
    return (
        policy_label(row.policy),
        both(row.error_seconds, row.error_change),
        *reduced,
        percent(row.crossing),
        "–" if math.isnan(row.worst_job.mean) else f"{row.worst_job.mean:.2f} ×",
        "–" if math.isnan(row.decision_ms.mean) else f"{row.decision_ms.mean:.2f}",
    )


def policy_label(name: str) -> str:
    """Return a policy's name, with its other one where it is the default."""
    others = [alias for alias, meant in ALIASES.items() if meant == name]
    return f"{name} ({', '.join(others)})" if others else name


def both(value: Figure, change: Figure) -> str:
    """Return a number, and in a second line by how much it differs from fair sharing's."""
    if math.isnan(value.mean):
        return "–"
    return f"{value.mean:,.4g}\n{signed(change)}".rstrip()


def signed(change: Figure) -> str:
    is_nothing = change.mean == 0 and not change.standard_error > 0
    if math.isnan(change.mean) or is_nothing:
        return ""
    spread = "" if math.isnan(change.standard_error) else f" ± {change.standard_error * 100:.0f}"
    return f"{change.mean * 100:+.0f}{spread} %".replace("-", "−")


def percent(figure: Figure) -> str:
    return "–" if math.isnan(figure.mean) else f"{figure.mean:.0%}"


def plain(row: Row) -> dict[str, Any]:
    """Return a row for other programs."""
    return {
        "policy": row.policy,
        "seeds": [run.seed for run in row.runs],
        "error_seconds": row.error_seconds.mean,
        "error_change": row.error_change.mean,
        **{
            f"seconds_to_{level:.0%}"[:-1]: each.mean
            for level, each in zip(REDUCTIONS, row.reduced, strict=True)
        },
        **{
            f"change_to_{level:.0%}"[:-1]: each.mean
            for level, each in zip(REDUCTIONS, row.reduced_change, strict=True)
        },
        "crossing": row.crossing.mean,
        "worst_job": row.worst_job.mean,
        "decision_ms": row.decision_ms.mean,
    }


class KeyedCase(Protocol):
    """One run of a study that is still to be computed."""

    @property
    def key(self) -> tuple[object, ...]:
        """That of its record."""
        ...


class KeyedRun(Protocol):
    """A record of a study."""

    kind_of_record: ClassVar[str]

    @property
    def key(self) -> tuple[object, ...]: ...

    @property
    def policy(self) -> str: ...

    @classmethod
    def of_record(cls, content: Mapping[str, Any]) -> Self: ...

    def as_record(self) -> dict[str, Any]: ...


C = TypeVar("C", bound=KeyedCase)
R = TypeVar("R", bound=KeyedRun)
Compute = Callable[[C, dict[str, Any], Callable[[], float]], R]
"""(case, circumstances, stopwatch) → its record. A function of a module, since other processes call it."""


def run_cases(cases: Sequence[Case], records: Path | None, processes: int | None) -> list[ScheduleRun]:
    """Return the records of cases of jobs that share cores, as `kept_or_computed` does."""
    return kept_or_computed(cases, ScheduleRun, run_case, records, processes)


def kept_or_computed(
    cases: Sequence[C], kind: type[R], compute: Compute[C, R], records: Path | None, processes: int | None
) -> list[R]:
    """Return the records of all cases: those the file has already, and those computed now and added to it."""
    facts = circumstances(command_words()).as_record()
    file = None if records is None else RecordFile(records)
    kept = () if file is None else file.read(kind.kind_of_record, kind.of_record)
    done = {repr(run.key): run for run in kept}
    missing = [case for case in cases if repr(case.key) not in done]
    with said_if_stopped(file), progress_bar() as show:
        for count, run in enumerate(_computed(missing, compute, facts, processes), start=1):
            done[repr(run.key)] = run
            if file is not None:
                file.append(kind.kind_of_record, run.as_record())
            show(count / len(missing), f"simulated {run.policy}")
    return [done[repr(case.key)] for case in cases]


@contextmanager
def said_if_stopped(file: RecordFile | None) -> Iterator[None]:
    """Say at ctrl-C where the records are, if they are kept, and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        if file is not None and file.path.exists():
            click.echo(
                f"\nStopped; what was done is kept in {file.path}. The same command goes on.", err=True
            )
        raise


def _computed(
    cases: Sequence[C], compute: Compute[C, R], facts: dict[str, Any], processes: int | None
) -> Iterator[R]:
    """Yield the records as they are ready, computed in as many processes; in this one where one is enough.

    Ctrl-C reaches every process of a terminal. Here it is this one alone that hears it, and ends the others:
    a pool whose processes it interrupts may wait for them for ever.
    """
    at_once = min(processes or usable_cores(), len(cases))
    if at_once <= 1:
        yield from (_run(compute, case, facts) for case in cases)
        return
    with ProcessPoolExecutor(at_once, multiprocessing.get_context("spawn")) as pool:
        try:
            with _deaf_to_ctrl_c():
                pending = [pool.submit(_run, compute, case, facts) for case in cases]
            for finished in as_completed(pending):
                yield finished.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Ignore ctrl-C, which processes that are started meanwhile do for good."""
    heard = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, heard)


def _run(compute: Compute[C, R], case: C, facts: dict[str, Any]) -> R:
    return compute(case, facts, time.perf_counter)


def print_runs(runs: Sequence[ScheduleRun], output: str) -> None:
    """Print policies side by side, setting by setting: a table for people, or one JSON object a row."""
    if output == "table":
        for table in tables(runs):
            console().print(table)
        return
    for group in settings(runs):
        setting = title_of(group)
        for row in compare(group):
            print_json({"setting": setting, **plain(row)})


def stop_rules(text: str) -> list[EarlyStops]:
    """Return the stop rules named in a comma-separated list, each once. Raises BadParameter."""
    words = list(dict.fromkeys(word.strip() for word in text.split(",")))
    for word in words:
        if word not in get_args(EarlyStops):
            raise click.BadParameter(f"{word!r} is none of own, same and none", param_hint="--stop")
    return cast("list[EarlyStops]", words)
