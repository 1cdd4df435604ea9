"""`relaqs simulate`: the policies on a cluster that is only computed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from relaqs.cli.parameters import format_option, numbers, share

if TYPE_CHECKING:
    from relaqs.records.trace import Trace

RECORDS = "simulate.jsonl"
POLICIES, ARRIVAL = "fair,relaqs,max_sum", "10,40,120"
MANY_JOBS = 1000  # of more, plans are made each epoch alone
STUDIES = {  # options that begin a study of its own, and what it is about
    "gangs": "elastic jobs",
    "placed": "placed jobs",
    "goals": "runs with goals",
    "grouped": "jobs in groups",
}
WORLDS = {"cores": "shared cores", **STUDIES}
ONLY_FOR = {  # an option says something in these worlds alone
    **dict.fromkeys(("nodes", "slots", "rescale"), ("gangs", "placed")),
    **dict.fromkeys(("failures", "repair", "stragglers", "spike"), ("gangs",)),
    **dict.fromkeys(("philly", "weights"), ("placed",)),
    **dict.fromkeys(("stop",), ("goals", "placed")),
    **dict.fromkeys(("machines",), ("grouped",)),
    **dict.fromkeys(("arrival",), ("cores", "gangs", "goals", "grouped")),
    **dict.fromkeys(("epochs_only",), ("cores", "gangs", "goals")),
    **dict.fromkeys(("epoch", "until"), ("cores", "gangs", "goals", "placed")),
    **dict.fromkeys(("cores", "servers", "jobs", "core_seconds"), ("cores", "goals")),
    **dict.fromkeys(
        ("arrivals", "training", "traces", "cost_scale", "most_cores", "validate"),
        ("cores",),
    ),
}


@click.command("simulate")
@click.option(
    "--policies",
    metavar="NAMES",
    help="Comma-separated; compared with `fair` where it is one of them. Default: fair,relaqs,max_sum; with "
    "--gangs, slot policies: tiresias,optimus,ones,sia,completion_rate; with --placed, placed policies: "
    "mlfs,mlf_h,tiresias,fair; with --grouped, group policies, compared with the first: "
    "isolated,shortest_first,colocated,muri,harmony.",
)
@click.option(
    "--gangs",
    metavar="JOBS",
    help="Elastic jobs on machines instead: `table2`, the 50 jobs of ONES's evaluation, or `adaptdl:DIR`, "
    "the workloads in the folder `simulator` of AdaptDL's artifact, each one seed.",
)
@click.option(
    "--grouped",
    metavar="JOBS",
    help="Jobs that take turns on machines instead: `harmony`, the 80 jobs of Harmony's evaluation at once; "
    "`harmony:poisson` or `harmony:bursts`, as they come; `harmony:computing` or `harmony:communicating`, "
    "the 60 that do most of it; `harmony:paper`, each figure of the paper beside ours; `harmony:baselines`, "
    "what Harmony gains by how its baseline is read; `harmony:progress`, what it brings to go by the loss.",
)
@click.option(
    "--machines",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="With 16 GB for rows and a disk of 125 MB/s each, for --grouped.",
)
@click.option(
    "--placed",
    metavar="SCENARIO",
    help="Models that are cut into parts, which policies place on devices, instead: `paper` and `tight` are "
    "made up as in MLFS's evaluation, `network` has a tenth of the network, `trace` is as on the Philly "
    "cluster of Microsoft. `paper:1240` says how many jobs; without it, 620. `paper:200@0.9` lets them come "
    "so fast that 0.9 of the devices would be in use, if all made all iterations.",
)
@click.option(
    "--stop",
    metavar="RULES",
    help="Who may end a job early, for --goals and --placed, comma-separated. `own`: only a policy with a "
    "rule of its own, which is load_control and mlfs; `same`: every policy by that rule; `none`: "
    "nobody. Default: own,same,none; own with --placed.",
)
@click.option(
    "--philly",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Durations and arrivals from the trace of Philly as CSV, with columns timestamp and duration, for "
    "--placed.",
)
@click.option(
    "--weights",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="What `relaqs learn` wrote, for the policy mlf_rl of --placed. Without it, the weights that come "
    "with relaqs.",
)
@click.option(
    "--nodes",
    type=click.IntRange(min=1),
    default=16,
    show_default=True,
    help="Machines, for --gangs; with --placed, 20 where it is not given.",
)
@click.option(
    "--slots",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="Of each machine, such as GPUs, for --gangs and --placed.",
)
@click.option(
    "--rescale",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="How long an elastic job pauses when it starts or its slots change, for --gangs; with --placed, "
    "when a part of it starts or moves, 5 where it is not given.",
)
@click.option(
    "--failures",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="RATE",
    help="How often each machine fails in an hour, for --gangs.",
)
@click.option(
    "--repair",
    type=click.FloatRange(min=0, min_open=True),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a machine that failed is away on average, for --gangs.",
)
@click.option(
    "--stragglers",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="RATE",
    help="How often each machine computes three times as long for a minute, in an hour, for --gangs.",
)
@click.option(
    "--spike",
    type=click.IntRange(min=0, max=50),
    default=0,
    metavar="JOBS",
    help="So many of the 50 jobs come at once, for --gangs table2.",
)
@click.option(
    "--goals",
    type=click.Choice(["paper", "tight"]),
    help="Training runs with deadlines, accuracies and urgency instead. `tight`: a deadline is 1.1 to 3 "
    "times what a run takes alone; `paper`: mostly half an hour to a day, as in the evaluation of MLFS.",
)
@click.option("--cores", type=click.FloatRange(min=0, min_open=True), default=256.0, show_default=True)
@click.option(
    "--servers",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    expose_value=False,
    help="They share the cores. No policy places jobs on servers, so their number changes no result.",
)
@click.option("--jobs", type=click.IntRange(min=1), default=12, show_default=True)
@click.option(
    "--arrival",
    metavar="SECONDS",
    help="Mean time between Poisson arrivals; several are several studies. Default: 10,40,120; with --gangs "
    "table2, that at which Tiresias's jobs queue as long as in the paper; 480 with --grouped.",
)
@click.option(
    "--arrivals",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Times of arrival in seconds, one a line, instead of --jobs and --arrival.",
)
@click.option(
    "--seeds", type=click.IntRange(min=1), default=5, show_default=True, help="How many repetitions."
)
@click.option(
    "--core-seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=30_000.0,
    show_default=True,
    help="What a made-up job needs on average.",
)
@click.option("--training", type=share, metavar="SHARE", help="Of made-up jobs: 50% train a model.")
@click.option(
    "--traces",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Replay the runs that `relaqs tpch run` recorded, instead of made-up jobs.",
)
@click.option(
    "--cost-scale",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="Replays --traces as if their data were so many times as large: in core-seconds and in tasks.",
)
@click.option(
    "--most-cores",
    type=click.FloatRange(min=0, min_open=True),
    default=math.inf,
    metavar="CORES",
    help="What one job can use at once; without it, all.",
)
@click.option(
    "--epoch",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Between plans. Default: 1, where a real run plans every half second; 60 with --gangs, --placed and "
    "--goals.",
)
@click.option(
    "--epochs-only/--at-once",
    default=None,
    help=f"Plan each epoch only, or also when jobs come and go. Default: at once up to {MANY_JOBS:,} jobs.",
)
@click.option("--until", type=click.FloatRange(min=0, min_open=True), default=math.inf, metavar="SECONDS")
@click.option("--processes", type=click.IntRange(min=1), help="How many run at once. Default: one a core.")
@click.option(
    "--validate",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Simulate the live runs that `relaqs tpch schedule` recorded, and say how far off that is.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help=f"Keep records in DIR/{RECORDS}, and go on with a study that was stopped.",
)
@format_option()
@click.pass_context
def simulate(
    context: click.Context,
    policies: str | None,
    gangs: str | None,
    placed: str | None,
    stop: str | None,
    philly: Path | None,
    weights: Path | None,
    grouped: str | None,
    machines: int,
    nodes: int,
    slots: int,
    rescale: float,
    failures: float,
    repair: float,
    stragglers: float,
    spike: int,
    goals: str | None,
    cores: float,
    jobs: int,
    arrival: str | None,
    arrivals: Path | None,
    seeds: int,
    core_seconds: float,
    training: float | None,
    traces: Path | None,
    cost_scale: float,
    most_cores: float,
    epoch: float | None,
    epochs_only: bool | None,
    until: float,
    processes: int | None,
    validate: Path | None,
    out: Path | None,
    output: str,
) -> None:
    """Share a simulated cluster among jobs by several policies, and compare them.

    Jobs are made up from theory (errors √((N−i)/(iN)), two kinds of convergence), or replay recorded runs.
    The policies and predictions are those of a real run. The same seeds give the same results. With --gangs,
    slot policies share simulated machines among elastic jobs. With --placed, policies place the parts of
    models on devices. With --grouped, group policies say which jobs take turns on the same machines.
    """
    studies = [name for name in STUDIES if _is_given(context, name)]
    if len(studies) > 1:
        raise click.UsageError(f"--{studies[0]} and --{studies[1]} are two studies; give one of them")
    _refuse_what_does_not_belong(context, studies[0] if studies else "cores")
    records = None if out is None else out / RECORDS
    if grouped is not None:
        from relaqs.cli.grouped import GroupedOptions, simulate_grouped

        simulate_grouped(
            GroupedOptions(grouped, policies, machines, arrival, seeds), records, processes, output
        )
        return
    if placed is not None:
        from relaqs.cli.placed import PlacedOptions, simulate_placed_jobs
        from relaqs.cli.studies import stop_rules

        simulate_placed_jobs(
            PlacedOptions(
                placed=placed,
                policies=policies,
                stops=stop_rules(stop or "own"),
                philly=philly,
                weights=weights,
                nodes=nodes if _is_given(context, "nodes") else None,
                devices=slots,
                restart_seconds=rescale if _is_given(context, "rescale") else None,
                seeds=seeds,
                period_seconds=epoch,
                until_seconds=until,
            ),
            records,
            processes,
            output,
        )
        return
    if gangs is not None:
        from relaqs.cli.gangs import GangOptions, simulate_gangs
        from relaqs.simulation.machines.faults import Faults

        faults = Faults(failures, repair, stragglers) if failures or stragglers else None

        simulate_gangs(
            GangOptions(
                gangs=gangs,
                policies=policies,
                nodes=nodes,
                slots=slots,
                rescale_seconds=rescale,
                arrival=arrival,
                seeds=seeds,
                epoch_seconds=epoch,
                at_events=not epochs_only,
                until_seconds=until,
                spike_jobs=spike,
                faults=faults,
            ),
            records,
            processes,
            output,
        )
        return
    from relaqs.cli.studies import print_runs, run_cases, stop_rules
    from relaqs.simulation.simulator import Options
    from relaqs.simulation.study import Case, JobMix

    if goals is not None:
        from relaqs.cli.goals import POLICIES as GOAL_POLICIES
        from relaqs.cli.goals import GoalOptions, simulate_goals

        simulate_goals(
            GoalOptions(
                deadlines=goals,
                policies=policy_names(policies or GOAL_POLICIES),
                stops=stop_rules(stop or "own,same,none"),
                jobs=jobs,
                arrival=arrival,
                core_seconds=core_seconds,
                cores=cores,
                seeds=seeds,
                options=Options(
                    epoch or 60.0, jobs <= MANY_JOBS if epochs_only is None else not epochs_only, until
                ),
            ),
            records,
            processes,
            output,
        )
        return
    if validate is not None:
        from relaqs.cli.validate import validate as print_agreement

        print_agreement(validate, output)
        return
    names = policy_names(policies or POLICIES)
    given = () if arrivals is None else read_arrivals(arrivals)
    count = len(given) or jobs
    mix = JobMix(
        traces=() if traces is None else read_traces(traces),
        traces_name="" if traces is None else traces.name,
        core_seconds=core_seconds,
        training_share=training or 0.0,
        cost_scale=cost_scale,
        cores_most=most_cores,
    )
    at_once = count <= MANY_JOBS if epochs_only is None else not epochs_only
    cases = [
        Case(
            policy=name,
            seed=seed,
            jobs=count,
            mean_arrival_seconds=mean,
            mix=mix,
            capacity_cores=cores,
            options=Options(epoch or 1.0, at_once, until),
            arrivals=given,
        )
        for mean in ([math.nan] if given else numbers("--arrival", arrival or ARRIVAL))
        for seed in range(seeds)
        for name in names
    ]
    print_runs(run_cases(cases, records, processes), output)


def _refuse_what_does_not_belong(context: click.Context, world: str) -> None:
    """Raise UsageError for an option that was given and would change nothing."""
    for name, worlds in ONLY_FOR.items():
        if world not in worlds and _is_given(context, name):
            option = "--" + name.replace("_", "-")
            where = " or ".join(f"--{each}" for each in worlds)
            hint = f"give {where} too" if world == "cores" else f"leave it out, or leave --{world} out"
            raise click.UsageError(f"{option} says nothing about {WORLDS[world]}; {hint}")


def _is_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def policy_names(text: str) -> list[str]:
    """Return the policies named in a comma-separated list, each once. Raises BadParameter with candidates."""
    from relaqs.cli.policy_tables import named_policies
    from relaqs.policies import make_policy

    return named_policies(text, make_policy, "fair,relaqs")


def read_arrivals(path: Path) -> tuple[float, ...]:
    """Return times of arrival, one a line. Raises BadParameter naming a line that is none."""
    times = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            seconds = float(line)
        except ValueError:
            seconds = math.nan
        if not 0 <= seconds < math.inf:
            raise click.BadParameter(
                f"{path}, line {number}: {line!r} is no time of arrival; write seconds from 0 on, one a line",
                param_hint="--arrivals",
            )
        times.append(seconds)
    if not times:
        raise click.BadParameter(f"{path} has no times of arrival", param_hint="--arrivals")
    return tuple(sorted(times))


def read_traces(path: Path) -> tuple[Trace, ...]:
    """Return the traces of recorded runs. Raises BadParameter if there are none."""
    from relaqs.records import QueryRun, RecordFile

    runs = RecordFile(path).read(QueryRun.kind_of_record, QueryRun.of_record)
    found = tuple(run.trace for run in runs)
    if not found:
        raise click.BadParameter(
            f"{path} has no recorded runs; `relaqs tpch run --data DIR --out OUT` writes "
            "them to OUT/run.jsonl",
            param_hint="--traces",
        )
    return found
