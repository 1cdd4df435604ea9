"""The jobs that share some cores as a table for terminals: what each gets, uses, and how good it is."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from relaqs.jobs.job import ClusterStatus, JobStatus

NAME_WIDTH = 48  # at most so much of a name, e.g. of SQL, is shown
WIDE = 100  # columns of a screen, from which all is shown
_WORDS = ("kind", "state", "client")
_NAMES = (
    *(*_WORDS, "weight", "share", "used", "slots", "batch", "rescales"),
    *("quality", "target", "accuracy", "due", "done", "core-s", "left"),
)
_OF_GANGS = {"slots", "batch", "rescales"}  # shown where there is a gang
_OF_GOALS = {"accuracy", "due"}  # shown where a job has one
# On a narrow screen, whose numbers must not be cut.
_LEFT_OUT = {"client", "weight", "target", "core-s", "batch", "rescales"}


def status_table(status: ClusterStatus, width: int = WIDE) -> Table:
    """Return one row a job, the oldest first, under a line on the cores. width: of the screen, in columns."""
    used = sum(job.used_cores for job in status.jobs)
    gangs = f", slots by {status.slot_policy}" if any(job.slots is not None for job in status.jobs) else ""
    table = Table(
        title=f"{status.capacity_cores:g} cores, {used:.1f} used, shared by policy {status.policy}{gangs}",
        title_justify="left",
        title_style="",
        box=None,
        header_style="dim",
        pad_edge=False,
    )
    rows = [_cells(job) for job in status.jobs]
    table.add_column("job", min_width=8, max_width=NAME_WIDTH, no_wrap=True, overflow="ellipsis")
    unused = set() if any(job.slots is not None for job in status.jobs) else _OF_GANGS
    unused |= {name for name in _OF_GOALS if not any(cells[name] for cells in rows)}
    left_out = unused if width >= WIDE else unused | _LEFT_OUT
    names = [name for name in _NAMES if name not in left_out]
    for name in names:
        longest = max([len(name), *(len(cells[name]) for cells in rows)])
        table.add_column(name, justify="left" if name in _WORDS else "right", no_wrap=True, min_width=longest)
    for job, cells in zip(status.jobs, rows, strict=True):
        # Names are text, never markup: they are what a user typed.
        table.add_row(Text(job.name or job.id), *(Text(cells[name]) for name in names))
    if not rows:
        table.add_row(Text("no jobs", style="dim"))
    return table


def _cells(job: JobStatus) -> dict[str, str]:
    left = job.core_seconds_left
    return {
        "kind": job.kind,
        "state": job.state,
        "client": job.user or job.client,
        "weight": f"{job.weight:g}",
        "share": f"{job.share_cores:.2f}",
        "used": f"{job.used_cores:.2f}",
        "slots": _number(job.slots),
        "batch": _number(job.batch_rows),
        "rescales": _number(job.rescales),
        "quality": _quality(job, job.quality),
        "target": _quality(job, job.target),
        "accuracy": _accuracy(job),
        "due": "" if job.deadline_seconds_left is None else f"{job.deadline_seconds_left:.0f} s",
        "done": f"{job.work_done:.0%}" if job.work_total == 1.0 else f"{job.work_done:.0f} steps",
        "core-s": f"{job.attained_core_seconds:.1f}",
        "left": "" if left is None else f"{left:.1f}",
    }


def _accuracy(job: JobStatus) -> str:
    """Return the accuracy so far, and behind a stroke the one that is required."""
    parts = [job.accuracy, job.accuracy_required]
    return " / ".join(f"{each:.1%}" for each in parts if each is not None)


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def _quality(job: JobStatus, value: float | None) -> str:
    """Return an error as a percentage, a loss in its own unit."""
    if value is None:
        return ""
    return f"{value:.2%}" if job.kind == "query" else f"{value:.4g}"
