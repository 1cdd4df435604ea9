"""The terminal while a schedule runs: every job, its share of the cores, and how good its answer is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from relaqs.jobs.job import ClusterStatus, JobStatus
from relaqs_tpch.schedule import LiveJob, Watcher

BAR_CELLS = 20


@contextmanager
def live_view(console: Console, title: str) -> Iterator[Watcher]:
    """Yield what is to be told how a run stands: it redraws a table, where the terminal can."""
    if not console.is_terminal or console.is_dumb_terminal:
        yield lambda at, status, jobs: None
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:

        def show(at_seconds: float, status: ClusterStatus, jobs: Sequence[LiveJob]) -> None:
            live.update(drawing(title, at_seconds, status, jobs), refresh=True)

        yield show


def drawing(title: str, at_seconds: float, status: ClusterStatus, jobs: Sequence[LiveJob]) -> Group:
    """Return the table of all jobs at a moment, in the order of their arrival."""
    known = {each.id: each for each in status.jobs}
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading, justify in (
        ("job", "left"),
        ("", "left"),
        ("cores", "left"),
        ("error", "right"),
        ("read", "left"),
    ):
        table.add_column(heading, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for job in jobs:
        table.add_row(*_row(job, known.get(job.id), at_seconds, status.capacity_cores))
    over = sum(job.is_over for job in jobs)
    heading = f"{title} · {at_seconds:.0f} s · {over} of {len(jobs)} jobs are over"
    return Group(Text(heading, style="bold"), table)


def _row(
    job: LiveJob, status: JobStatus | None, at_seconds: float, capacity_cores: float
) -> tuple[str, str, Text, str, Text]:
    name = job.arrival.name
    if job.is_over:
        return name, "over", Text(""), "0" if job.arrival.number is not None else "", _bar(1.0, "green")
    if status is None:
        wait = max(job.arrival.at_seconds - at_seconds, 0.0)
        return name, f"in {wait:.0f} s", Text(""), "", Text("")
    share = status.used_cores / capacity_cores if capacity_cores else 0.0
    done = status.work_done / status.work_total if status.work_total else 0.0
    return name, status.state, _bar(share, "cyan"), _quality(status), _bar(done, "green")


def _bar(share: float, style: str) -> Text:
    """Return a bar that is also told without colour, and its share in percent."""
    cells = round(min(max(share, 0.0), 1.0) * BAR_CELLS)
    text = Text("█" * cells, style=style)
    text.append("·" * (BAR_CELLS - cells), style="dim")
    text.append(f" {share:4.0%}", style="")
    return text


def _quality(status: JobStatus) -> str:
    if status.quality is None or not math.isfinite(status.quality):
        return "?"
    return f"{status.quality:.3g}" if status.kind == "training" else f"± {status.quality:.1%}"
