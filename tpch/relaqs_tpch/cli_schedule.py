"""`relaqs tpch schedule`: many jobs that share the cores, really run, under each of several policies.

While they run the terminal shows every job, its share of the cores, and how good its answer is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import click
from relaqs_lab.cli.shared_cores import core_policies
from relaqs_lab.cli.studies import print_runs, said_if_stopped
from relaqs_lab.records import RecordFile, ScheduleRun, circumstances
from relaqs_lab.records.store import SCHEDULES
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from relaqs.cli.parameters import cluster_option, command_words, format_option, numbers, share, tls_options
from relaqs.executors import ThreadExecutor
from relaqs.executors.threads import usable_cores
from relaqs.jobs.job import ClusterStatus, JobStatus
from relaqs.policies import make_policy
from relaqs_tpch.schedule import Arrival, LiveJob, Setting, Watcher, arrivals, in_words, run_schedule
from relaqs_tpch.warehouse import Warehouse, algorithms, out_option, query, query_numbers

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


@click.command("schedule", short_help="Run many jobs at once, by several policies.")
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    multiple=True,
    metavar="DIR",
    help="Warehouse made by `relaqs tpch generate`; several mix their scales.",
)
@click.option(
    "--policies",
    default="fair,relaqs,max_sum,fifo",
    show_default=True,
    metavar="NAMES",
    help="Comma-separated; compared with `fair` where it is one of them.",
)
@click.option(
    "--arrival",
    default="0.1,0.3,1",
    show_default=True,
    metavar="SECONDS",
    help="Mean time between Poisson arrivals; several are run one after another.",
)
@click.option("--jobs", type=click.IntRange(min=1), default=12, show_default=True)
@click.option(
    "--seeds", type=click.IntRange(min=1), default=3, show_default=True, help="How many repetitions."
)
@click.option("--queries", default="", metavar="NUMBERS", help="To draw from. Default: all with estimates.")
@click.option("--training", type=share, metavar="SHARE", help="Of the jobs: 25% train a model.")
@cluster_option
@tls_options
@click.option("--threads", type=click.IntRange(min=1), default=usable_cores, show_default="all cores")
@out_option
@format_option()
def schedule_command(
    data: tuple[Path, ...],
    policies: str,
    arrival: str,
    jobs: int,
    seeds: int,
    queries: str,
    training: float | None,
    cluster: str | None,
    security: dict[str, str] | None,
    threads: int,
    out: Path,
    output: str,
) -> None:
    """Let jobs arrive at random and share the cores, under each policy, and compare how soon errors fall.

    Each seed draws queries and arrivals; every policy gets the same, and each job runs to its exact end.
    Records go to OUT/schedule.jsonl as they are made: stopped, the same command goes on from there. Data laid
    out otherwise are measured anew.
    `relaqs simulate --validate` simulates the same runs.
    """
    names, chosen = core_policies(policies), query_numbers(queries)
    if training:
        algorithms("all", is_default=True)
    warehouses = [Warehouse.open(folder) for folder in data]
    workload = in_words(warehouses, chosen, training or 0.0, is_on_cluster=cluster is not None)
    file = RecordFile(out / SCHEDULES)
    done = {repr(run.key): run for run in file.read(ScheduleRun.kind_of_record, ScheduleRun.of_record)}
    facts = circumstances(command_words()).as_record()
    console, shown, is_warm = Console(stderr=True), [], False
    for mean, seed in product(numbers("--arrival", arrival), range(seeds)):
        drawn = arrivals(
            warehouses, chosen, jobs=jobs, mean_seconds=mean, training_share=training or 0.0, seed=seed
        )
        for name in names:
            setting = Setting(name, seed, mean, workload, threads, cluster, security)
            kept = [run for run in done.values() if _is_same(run, setting, drawn)]
            if not kept:
                if not is_warm:
                    _warm_up(warehouses, drawn, threads)
                    is_warm = True
                title = f"policy {make_policy(name).name} · seed {seed} · a job every {mean:g} s"
                with said_if_stopped(file), live_view(console, title) as watch:
                    run = run_schedule(setting, drawn, warehouses, facts, watch)
                console.print(f"{title} · over after {run.series.at_seconds[-1]:.1f} s", highlight=False)
                file.append(ScheduleRun.kind_of_record, run.as_record())
                kept = [run]
            shown.append(kept[-1])
    print_runs(shown, output)


def _is_same(run: ScheduleRun, setting: Setting, drawn: Sequence[Arrival]) -> bool:
    """Whether this run was measured before. On a cluster, whose cores come and go, they are not compared."""
    wanted = (make_policy(setting.policy).name, setting.seed, setting.mean_arrival_seconds, setting.workload)
    found = (run.policy, run.seed, run.arrival_seconds, run.workload)
    has_cores = setting.cluster is not None or run.capacity_cores == setting.threads
    return found == wanted and run.jobs.names == tuple(each.name for each in drawn) and has_cores


def _warm_up(warehouses: Sequence[Warehouse], drawn: Sequence[Arrival], threads: int) -> None:
    """Run each query once, so that the first policy does not pay for the disk and for modules not loaded."""
    for warehouse in warehouses:
        wanted = {each.number for each in drawn if each.folder == warehouse.folder}
        with warehouse.session(ThreadExecutor(threads), is_embedded=True) as session:
            for number in sorted(each for each in wanted if each is not None):
                session.online_sql(query(number)).result()
