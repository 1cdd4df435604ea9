"""Does the simulator over machines foretell what elastic training takes that shares a cluster for real?

    python -m benchmarks.orchestration_simulated [--workers 2] [--seeds 0,1,2] [--jobs 12] [--arrival 1]

The trainings are those of `benchmarks.orchestration_live`, without its queries. Three parts:

- *Measured*: each kind of training by itself, with steps of fixed size and with steps that grow, on one slot
  and on more. As many runs of one kind train at once as fill the cluster, so all cores work as they do below.
- *Live*: a seed's trainings arrive at random and share the cluster, by fixed gangs and by each slot policy.
- *Simulated*: the same arrivals, under the same policy, with nothing but what the first part measured.

A run makes the same steps whatever slots it has. So the simulator is given a kind's passes, its mean rows a
step, its losses, and how long it took on so many slots. *Apart* is how far the simulated mean completion is
from the live one, relative to that. All by the clock on the wall, so it is for a machine that does nothing
else.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from relaqs_lab.records.comparison import Figure
from relaqs_lab.simulation.machines.machine_simulator import Timing, simulate_gangs
from relaqs_lab.simulation.machines.workloads import Convergence, ElasticJob, GangWorkload, Trainable
from rich.console import Console
from rich.table import Table

from benchmarks import tpch
from benchmarks.orchestration_jobs import Drawn, FixedGangs, Template, targets, templates
from benchmarks.orchestration_live import ELASTIC, FIXED, session_on_cluster, warm_up
from benchmarks.record import circumstances, headline, write
from relaqs.executors.dask.slots import SLOT_EPOCH_SECONDS
from relaqs.policies.registry import chosen_slot_policy
from relaqs.sharing.gangs import Nodes, SlotPolicy
from relaqs.training import TrainingRun

Batch = Literal["fixed", "elastic"]

APART_MOST = 0.10
WAYS: tuple[tuple[str, SlotPolicy | str, Batch], ...] = (
    (FIXED, FixedGangs(), "fixed"),
    *((policy, policy, "elastic") for policy in ELASTIC),
)
PIECE_ROWS = 256  # the least rows of a slot: what all kinds have
PAUSE_SECONDS = 0.05  # of a change of slots; `benchmarks.rescale_live` measures it


@dataclass(frozen=True, slots=True)
class Measured:
    """What a kind of training took by itself.

    Attributes:
        rows: of one pass.
        batch_rows: of a step, the mean.
        losses: after each pass.
        seconds_by_slots: from its start to its end on so many slots.
    """

    rows: float
    batch_rows: float
    losses: tuple[float, ...]
    seconds_by_slots: dict[int, float]

    def trainable(self, name: str) -> Trainable:
        """Return it for the simulator. A pass is a stage; a row counts alike in each step."""
        first = self.losses[0]
        quality = np.array([1.0 - loss / first for loss in self.losses])
        convergence = Convergence.of_noise(
            self.batch_rows,
            self.rows,
            [self.batch_rows] * len(self.losses),
            quality=np.maximum.accumulate(np.clip(quality, 0.0, 1.0)),
            is_linear=True,
        )
        steps = len(self.losses) * self.rows / self.batch_rows
        rates = RatesBySlots({slots: seconds / steps for slots, seconds in self.seconds_by_slots.items()})
        return Trainable(name, self.rows, rates, convergence, PIECE_ROWS, self.batch_rows, self.batch_rows)


@dataclass(frozen=True, slots=True)
class RatesBySlots:
    """The seconds of a step on so many slots, as measured. Between two counts those of the smaller one."""

    step_seconds: Mapping[int, float]

    def step_and_compute(self, placement: tuple[int, ...], slot_rows: float) -> tuple[float, float]:
        slots = max(each for each in self.step_seconds if each <= sum(placement))
        return self.step_seconds[slots], self.step_seconds[slots]


def measured(
    options: argparse.Namespace, chosen: Sequence[Template], losses: Mapping[str, float]
) -> dict[tuple[str, Batch], Measured]:
    """Return what each kind took by itself, with steps of either sort."""
    found: dict[tuple[str, Batch], Measured] = {}
    slots = 1
    while slots <= options.workers:
        with session_on_cluster(options.data, options.workers, FixedGangs(slots)) as (driver, _):
            warm_up(driver.session, chosen)
            for each in chosen:
                for batch in ("fixed", "elastic"):
                    rows: int | Literal["elastic"] = each.job.start_rows if batch == "fixed" else "elastic"
                    if batch == "fixed" and each.job.start_rows // PIECE_ROWS < slots:
                        continue  # its steps cannot fill so many
                    runs = [
                        each.started(driver.session, rows, losses[each.name])
                        for _ in range(options.workers // slots)
                    ]
                    note(found, (each.name, batch), slots, runs)
        slots *= 2
    return found


def note(
    found: dict[tuple[str, Batch], Measured], kind: tuple[str, Batch], slots: int, runs: Sequence[TrainingRun]
) -> None:
    """Wait for runs of one kind that train at once, and keep what they took."""
    for each in runs:
        each.result()
    seconds = float(np.mean([each.steps[-1].elapsed_seconds for each in runs]))
    if kind not in found:
        journal = runs[0].journal
        assert journal is not None
        passes = len(runs[0].losses)
        rows = float(journal.batch_rows.sum()) / passes
        batch_rows = 2.0 * round(float(journal.batch_rows.mean()) / 2.0)  # so that two slots share it
        found[kind] = Measured(rows, batch_rows, runs[0].losses, {})
    found[kind].seconds_by_slots[slots] = seconds
    print(f"  {', '.join(kind)}: {seconds:.1f} s on {slots} slots", file=sys.stderr, flush=True)


def live(
    options: argparse.Namespace,
    chosen: Sequence[Template],
    policy: SlotPolicy | str,
    drawn: Drawn,
    batch: Batch,
    losses: Mapping[str, float],
) -> dict[str, float]:
    """Return the seconds from the arrival of each training to its end, by its name."""
    with session_on_cluster(options.data, options.workers, policy) as (driver, _):
        warm_up(driver.session, chosen)
        mix = drawn.by_gangs(batch, losses)
        run = driver.run(mix.jobs, mix.arrival_seconds)
    return {each.job.name: float(each.at_seconds[-1]) - each.arrival_seconds for each in run.finished}


def simulated(
    options: argparse.Namespace,
    policy: SlotPolicy | str,
    drawn: Drawn,
    batch: Batch,
    kinds: Mapping[tuple[str, Batch], Measured],
) -> dict[str, float]:
    """Return what the simulator says that these are."""
    mix = drawn.by_gangs(batch, {each.name: 0.0 for each in drawn.trained})
    trained = {f"training {number}": each.name for number, each in enumerate(drawn.trained)}
    jobs = [
        ElasticJob(job.name, kinds[trained[job.name], batch].trainable(trained[job.name]), at_seconds)
        for job, at_seconds in zip(mix.jobs, mix.arrival_seconds.tolist(), strict=True)
    ]
    outcome = simulate_gangs(
        GangWorkload("live trainings", tuple(jobs)),
        chosen_slot_policy(policy),
        Nodes.equal(1, slots=options.workers),
        Timing(SLOT_EPOCH_SECONDS, at_events=True, rescale_seconds=PAUSE_SECONDS),
    )
    return dict(zip(outcome.names, outcome.completion_seconds.tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class Pair:
    """One way of one seed: the seconds that each training took, by its name."""

    way: str
    seed: int
    live: dict[str, float]
    simulated: dict[str, float]

    @property
    def means(self) -> tuple[float, float]:
        return float(np.mean([*self.live.values()])), float(np.mean([*self.simulated.values()]))

    @property
    def apart(self) -> float:
        """How far the simulated mean is from the live one; above 0: it is longer."""
        mean_live, mean_simulated = self.means
        return mean_simulated / mean_live - 1.0


def asked(pairs: Sequence[Pair]) -> list[tuple[str, Figure, bool]]:
    """Return each way, how far simulation and world are apart in it, and whether that is little enough."""
    rows = []
    for way in dict.fromkeys(each.way for each in pairs):
        apart = Figure.of([each.apart for each in pairs if each.way == way])
        rows.append((way, apart, abs(apart.mean) <= APART_MOST))
    return rows


def tables(pairs: Sequence[Pair]) -> tuple[Table, Table]:
    """Return the table of what is asked, and that of each seed."""
    verdicts = Table("way", f"apart (asked: within {APART_MOST:.0%})", "")
    for way, apart, is_reached in asked(pairs):
        spread = "" if np.isnan(apart.standard_error) else f" ± {apart.standard_error:.1%}"
        verdicts.add_row(way, f"{apart.mean:+.1%}{spread}", "reached" if is_reached else "not reached")
    each_seed = Table("seed", "way", "live, s", "simulated, s", "apart")
    for each in pairs:
        mean_live, mean_simulated = each.means
        each_seed.add_row(
            str(each.seed), each.way, f"{mean_live:.1f}", f"{mean_simulated:.1f}", f"{each.apart:+.1%}"
        )
    return verdicts, each_seed


def parsed(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.orchestration_simulated",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread, default 2")
    parser.add_argument("--seeds", default="0,1,2", help="of jobs, their order and arrivals, default 0,1,2")
    parser.add_argument("--jobs", type=int, default=12, help="trainings of a seed, default 12")
    parser.add_argument("--kinds", type=int, default=4, help="of trainings, the first so many; default all")
    parser.add_argument("--arrival", type=float, default=1.0, help="mean seconds between arrivals, default 1")
    parser.add_argument("--scale", type=float, default=0.05, help="of the TPC-H data, default 0.05")
    parser.add_argument("--data", type=Path, help="a warehouse that has it, instead of making one")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    options = parsed(words)
    facts = circumstances("orchestration_simulated", words)
    if options.data is None:
        options.data = tpch.warehouse(options.scale)[0]
    chosen = templates()[: options.kinds]
    print(f"{len(chosen)} kinds of trainings by themselves …", file=sys.stderr, flush=True)
    losses = targets(options.data, chosen)
    kinds = measured(options, chosen, losses)
    pairs = []
    for seed in map(int, options.seeds.split(",")):
        drawn = Drawn.of(seed, chosen, options.jobs, (), options.arrival)
        for way, policy, batch in WAYS:
            print(f"seed {seed}, {way} …", file=sys.stderr, flush=True)
            took = live(options, chosen, policy, drawn, batch, losses)
            pairs.append(Pair(way, seed, took, simulated(options, policy, drawn, batch, kinds)))
            print(f"  apart {pairs[-1].apart:+.1%}", file=sys.stderr, flush=True)
    console = Console()
    console.print(headline(facts), *tables(pairs), sep="\n")
    content = {
        "measured": [{"kind": kind, **asdict(each)} for kind, each in kinds.items()],
        "pairs": [asdict(each) for each in pairs],
        "asked": [
            {"way": way, "apart": asdict(apart), "is_reached": is_reached}
            for way, apart, is_reached in asked(pairs)
        ],
    }
    console.print(f"Record: {write('orchestration_simulated', facts, content)}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
