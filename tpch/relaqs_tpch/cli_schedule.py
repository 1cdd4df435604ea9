"""`relaqs tpch schedule`: many jobs that share the cores, really run, under each of several policies."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import click
from relaqs_lab.cli.shared_cores import core_policies
from relaqs_lab.cli.studies import print_runs, said_if_stopped
from relaqs_lab.records import RecordFile, ScheduleRun, circumstances
from relaqs_lab.records.store import SCHEDULES
from rich.console import Console

from relaqs.cli.parameters import cluster_option, command_words, format_option, numbers, share, tls_options
from relaqs.executors import ThreadExecutor
from relaqs.executors.threads import usable_cores
from relaqs.policies import make_policy
from relaqs_tpch.live_view import live_view
from relaqs_tpch.mix import Arrival, arrivals, in_words
from relaqs_tpch.parameters import algorithms, out_option, query_numbers
from relaqs_tpch.queries import query
from relaqs_tpch.schedule import Setting, run_schedule
from relaqs_tpch.warehouse import Warehouse


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
