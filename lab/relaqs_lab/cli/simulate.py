"""`relaqs simulate`: the policies on a cluster that is only computed.

Its options say what is shared. What each study does with them is in `shared_cores.py` and `machines.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from relaqs.cli.parameters import Numbers, format_option, share

RECORDS = "simulate.jsonl"
MANY_JOBS = 1000  # of more, plans are made each epoch alone
STUDIES = {  # options that begin a study of its own, and what it is about
    "goals": "runs with goals",
    "gangs": "elastic jobs",
    "placed": "placed jobs",
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
SECTIONS = (
    "What is simulated, one of",
    "Every study",
    "Most studies",
    "Shared cores, also with --goals",
    "Shared cores",
)  # of the help, in this order; then those of one study or two


class StudyCommand(click.Command):
    """A command whose help says study by study which options it has."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {title: [] for title in SECTIONS}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and parameter.name is not None:
                sections.setdefault(_section(parameter.name), []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


def _section(option: str) -> str:
    """Return under which title of the help an option stands."""
    worlds = ONLY_FOR.get(option, tuple(WORLDS))
    if option in STUDIES:
        return SECTIONS[0]
    if len(worlds) == len(WORLDS):
        return SECTIONS[1]
    if len(worlds) > 2:
        return SECTIONS[2]
    if "cores" in worlds:
        return SECTIONS[3] if len(worlds) > 1 else SECTIONS[4]
    return "With " + " or ".join(f"--{world}" for world in worlds)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationOptions:
    """What the command line says, option by option. None: as usual in that study."""

    policies: str | None
    gangs: str | None
    grouped: str | None
    placed: str | None
    goals: str | None
    machines: int
    stop: str | None
    philly: Path | None
    weights: Path | None
    nodes: int | None
    slots: int
    rescale: float | None
    failures: float
    repair: float
    stragglers: float
    spike: int
    cores: float
    jobs: int
    arrival: str | None
    arrivals: Path | None
    seeds: int
    core_seconds: float
    training: float | None
    traces: Path | None
    cost_scale: float
    most_cores: float
    epoch: float | None
    epochs_only: bool | None
    until: float
    processes: int | None
    validate: Path | None
    out: Path | None
    output: str

    @property
    def records(self) -> Path | None:
        """Where records are kept, None for nowhere."""
        return None if self.out is None else self.out / RECORDS

    def plans_at_events(self, jobs: int) -> bool:
        """Whether a plan is made when a job comes or goes, too, if there are so many jobs."""
        return jobs <= MANY_JOBS if self.epochs_only is None else not self.epochs_only


@click.command("simulate", cls=StudyCommand, short_help="Compare policies on a simulated cluster.")
@click.option(
    "--goals",
    type=click.Choice(["paper", "tight"]),
    help="Training runs with deadlines, accuracies and urgency, on shared cores. `tight`: a deadline is 1.1 "
    "to 3 times what a run takes alone; `paper`: mostly half an hour to a day, as in the evaluation of MLFS. "
    "Policies if not given: "
    "fair, index, shortest_remaining_time, deadlines, load_control:index, load_control:deadlines.",
)
@click.option(
    "--gangs",
    metavar="JOBS",
    help="Elastic jobs on machines: `table2`, the 50 jobs of ONES's evaluation, or `adaptdl:DIR`, "
    "the workloads in the folder `simulator` of AdaptDL's artifact, each one seed. Policies if not given: "
    "tiresias, optimus, ones, sia, completion_rate.",
)
@click.option(
    "--placed",
    metavar="SCENARIO",
    help="Models that are cut into parts, which policies place on devices: `paper` and `tight` are "
    "made up as in MLFS's evaluation, `network` has a tenth of the network, `trace` is as on the Philly "
    "cluster of Microsoft. `paper:1240` says how many jobs; without it, 620. `paper:200@0.9` lets them come "
    "so fast that 0.9 of the devices would be in use, if all made all iterations. Policies if not given: "
    "mlfs, mlf_h, tiresias, fair.",
)
@click.option(
    "--grouped",
    metavar="JOBS",
    help="Jobs that take turns on machines: `harmony`, the 80 jobs of Harmony's evaluation at once; "
    "`harmony:poisson` or `harmony:bursts`, as they come; `harmony:computing` or `harmony:communicating`, "
    "the 60 that do most of it; `harmony:paper`, each figure of the paper beside ours; `harmony:baselines`, "
    "what Harmony gains by how its baseline is read; `harmony:progress`, what it brings to go by the loss; "
    "`harmony:queries`, what queries get beside the jobs. Policies if not given, compared with the first: "
    "isolated, shortest_first, colocated, muri, harmony, harmony_progress.",
)
@click.option(
    "--policies",
    metavar="NAMES",
    help="Comma-separated, of the kind that the study compares. A wrong name is answered with all right "
    "ones. Default: fair, relaqs, max_sum; those said above with the option of a study.",
)
@click.option(
    "--seeds", type=click.IntRange(min=1), default=5, show_default=True, help="How many repetitions."
)
@click.option("--processes", type=click.IntRange(min=1), help="How many run at once. Default: one a core.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help=f"Keep records in DIR/{RECORDS}, and go on with a study that was stopped.",
)
@click.option(
    "--arrival",
    metavar="SECONDS",
    help="Mean time between Poisson arrivals; several are several studies. Default: 10,40,120; 150 with "
    "--goals; 480 with --grouped; with --gangs table2, that at which Tiresias's jobs queue as long as in the "
    "paper.",
)
@click.option(
    "--epoch",
    type=Numbers(min=0, min_open=True, may_be_endless=True),
    metavar="SECONDS",
    help="Between plans. Default: 1, where a real run plans every half second; 60 with --gangs, --placed and "
    "--goals.",
)
@click.option(
    "--epochs-only/--at-once",
    default=None,
    help=f"Plan each epoch only, or also when jobs come and go. Default: at once up to {MANY_JOBS:,} jobs.",
)
@click.option(
    "--until",
    type=Numbers(min=0, min_open=True, may_be_endless=True),
    default=math.inf,
    metavar="SECONDS",
    help="End at this simulated time, whatever is left of the jobs.",
)
@click.option(
    "--cores",
    type=Numbers(min=0, min_open=True),
    default=256.0,
    show_default=True,
    help="What all jobs share.",
)
@click.option(
    "--servers",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    expose_value=False,
    help="They share the cores. No policy places jobs on servers, so their number changes no result.",
)
@click.option(
    "--jobs", type=click.IntRange(min=1), default=12, show_default=True, help="How many come, in each seed."
)
@click.option(
    "--core-seconds",
    type=Numbers(min=0, min_open=True),
    default=30_000.0,
    show_default=True,
    help="What a made-up job needs on average.",
)
@click.option(
    "--arrivals",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Times of arrival in seconds, one a line, instead of --jobs and --arrival.",
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
    type=Numbers(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="Replays --traces as if their data were so many times as large: in core-seconds and in tasks.",
)
@click.option(
    "--most-cores",
    type=Numbers(min=0, min_open=True, may_be_endless=True),
    default=math.inf,
    metavar="CORES",
    help="What one job can use at once; without it, all.",
)
@click.option(
    "--validate",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Simulate the live runs that `relaqs tpch schedule` recorded, and say how far off that is.",
)
@click.option(
    "--stop",
    metavar="RULES",
    help="Who may end a job early, comma-separated. `own`: only a policy with a "
    "rule of its own, which is load_control and mlfs; `same`: every policy by that rule; `none`: "
    "nobody. Default: own,same,none; own with --placed.",
)
@click.option(
    "--nodes",
    type=click.IntRange(min=1),
    help="Machines. Default: 16 with --gangs, 20 with --placed.",
)
@click.option(
    "--slots",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="Of each machine, such as GPUs.",
)
@click.option(
    "--rescale",
    type=Numbers(min=0),
    metavar="SECONDS",
    help="How long a job pauses when it starts and when its slots change, 1 if not given; with --placed, "
    "when a part of it starts or moves, 5 if not given.",
)
@click.option(
    "--failures",
    type=Numbers(min=0),
    default=0.0,
    metavar="RATE",
    help="How often each machine fails in an hour.",
)
@click.option(
    "--repair",
    type=Numbers(min=0, min_open=True),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a machine that failed is away on average.",
)
@click.option(
    "--stragglers",
    type=Numbers(min=0),
    default=0.0,
    metavar="RATE",
    help="How often in an hour each machine takes three times as long for a minute.",
)
@click.option(
    "--spike",
    type=click.IntRange(min=0, max=50),
    default=0,
    metavar="JOBS",
    help="So many of the 50 jobs of table2 come at once.",
)
@click.option(
    "--philly",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Durations and arrivals from the trace of Philly as CSV, with columns timestamp and duration.",
)
@click.option(
    "--weights",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="What `relaqs learn` wrote, for mlf_rl and mlfs. Without it, the weights that come with relaqs.",
)
@click.option(
    "--machines",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="With 16 GB for rows and a disk of 125 MB/s each.",
)
@format_option()
@click.pass_context
def simulate(context: click.Context, /, **options: Any) -> None:
    """Compare policies on a cluster that is only computed.

    The policies and their predictions are those of a real run. The same seeds give the same results. Jobs
    are made up; or they replay what `relaqs tpch run` recorded, with --traces. What is shared decides which
    policies there are to compare:

    \b
    nothing    queries and training runs share cores; `policy=` of relaqs.connect
    --goals    the same, for runs with deadlines and accuracies
    --gangs    models in training share slots of machines; `slot_policy=`
    --placed   models in parts share devices; `placed=` of ModelParts
    --grouped  jobs that compute and send in turns share machines; simulated only
    """
    studies = [name for name in STUDIES if _is_given(context, name)]
    if len(studies) > 1:
        raise click.UsageError(f"--{studies[0]} and --{studies[1]} are two studies; give one of them")
    study = studies[0] if studies else "cores"
    _refuse_what_does_not_belong(context, study)
    asked = SimulationOptions(**options)
    if asked.validate is not None:
        from relaqs_lab.cli.shared_cores import validate

        validate(asked.validate, asked.output)
        return
    {"cores": _cores, "goals": _goals, "gangs": _gangs, "placed": _placed, "grouped": _grouped}[study](asked)


def _cores(asked: SimulationOptions) -> None:
    from relaqs_lab.cli.shared_cores import CoreOptions, simulate_shared_cores

    options = CoreOptions(
        policies=asked.policies,
        jobs=asked.jobs,
        arrival=asked.arrival,
        arrivals=asked.arrivals,
        seeds=asked.seeds,
        cores=asked.cores,
        core_seconds=asked.core_seconds,
        training_share=asked.training or 0.0,
        traces=asked.traces,
        cost_scale=asked.cost_scale,
        cores_most=asked.most_cores,
        epoch_seconds=asked.epoch,
        plans_at_events=asked.plans_at_events,
        until_seconds=asked.until,
    )
    simulate_shared_cores(options, asked.records, asked.processes, asked.output)


def _goals(asked: SimulationOptions) -> None:
    from relaqs_lab.cli.shared_cores import GoalOptions, simulate_goals
    from relaqs_lab.cli.studies import stop_rules

    options = GoalOptions(
        deadlines=asked.goals or "",
        policies=asked.policies,
        stops=stop_rules(asked.stop or "own,same,none"),
        jobs=asked.jobs,
        arrival=asked.arrival,
        core_seconds=asked.core_seconds,
        cores=asked.cores,
        seeds=asked.seeds,
        epoch_seconds=asked.epoch,
        at_events=asked.plans_at_events(asked.jobs),
        until_seconds=asked.until,
    )
    simulate_goals(options, asked.records, asked.processes, asked.output)


def _gangs(asked: SimulationOptions) -> None:
    from relaqs_lab.cli.machines import GangOptions, simulate_gangs
    from relaqs_lab.simulation.machines.faults import Faults

    fails = asked.failures or asked.stragglers
    options = GangOptions(
        gangs=asked.gangs or "",
        policies=asked.policies,
        nodes=asked.nodes,
        slots=asked.slots,
        rescale_seconds=asked.rescale,
        arrival=asked.arrival,
        seeds=asked.seeds,
        epoch_seconds=asked.epoch,
        at_events=not asked.epochs_only,
        until_seconds=asked.until,
        spike_jobs=asked.spike,
        faults=Faults(asked.failures, asked.repair, asked.stragglers) if fails else None,
    )
    simulate_gangs(options, asked.records, asked.processes, asked.output)


def _placed(asked: SimulationOptions) -> None:
    from relaqs_lab.cli.machines import PlacedOptions, simulate_placed_jobs
    from relaqs_lab.cli.studies import stop_rules

    options = PlacedOptions(
        placed=asked.placed or "",
        policies=asked.policies,
        stops=stop_rules(asked.stop or "own"),
        philly=asked.philly,
        weights=asked.weights,
        nodes=asked.nodes,
        devices=asked.slots,
        restart_seconds=asked.rescale,
        seeds=asked.seeds,
        period_seconds=asked.epoch,
        until_seconds=asked.until,
    )
    simulate_placed_jobs(options, asked.records, asked.processes, asked.output)


def _grouped(asked: SimulationOptions) -> None:
    from relaqs_lab.cli.machines import GroupedOptions, simulate_grouped

    options = GroupedOptions(asked.grouped or "", asked.policies, asked.machines, asked.arrival, asked.seeds)
    simulate_grouped(options, asked.records, asked.processes, asked.output)


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
