"""Runs the cases of a study, several at once, keeps each as soon as it is there, and prints them."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, TypeVar, cast, get_args

import click

from relaqs.cli.parameters import command_words
from relaqs.cli.reading import progress_bar
from relaqs.executors.threads import usable_cores
from relaqs_lab.cli.policy_tables import console, plain, print_json, tables, title_of
from relaqs_lab.records import RecordFile, ScheduleRun, circumstances
from relaqs_lab.records.comparison import compare, settings
from relaqs_lab.simulation.study import Case, run_case
from relaqs_lab.simulation.workload import EarlyStops


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
