"""What can be had at 70 % and at 90 % smaller error at once: simulated policies beside a bound of any policy.

    python -m benchmarks.frontier [--arrival 120] [--seeds 20] [--policies fair,relaqs,max_sum] [--keep FILE]

The queries are those of `relaqs simulate`: twelve made-up ones of about 30,000 core-seconds on 256 cores, as
in the thesis. Two tables are printed for each time between arrivals.

- *The policies*: the mean time to 70, 90 and 95 % smaller error relative to fair sharing, and the integral of
  the error. The last line is the bound of each time for itself (`lab/relaqs_lab/simulation/bound.py`). It
  knows all errors in advance, which no policy does.
- *The frontier*: the time to 70 % and the time to 90 %, each relative to fair sharing's, in one number by a
  weight. The best policy of the first table stands beside the bound of this number for any policy.

The family "milestones:70x4+90" goes from one end of the frontier to the other by its weights. A seed takes
4 s of one core for each policy. With `--keep` it is kept in a file, and the next call goes on with the rest.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from relaqs_lab.cli.studies import policy_label, run_cases, signed
from relaqs_lab.records.comparison import REFERENCE, Figure, compare, seconds_to
from relaqs_lab.records.schedule_run import REDUCTIONS, ScheduleRun
from relaqs_lab.simulation.bound import least_mean_seconds, least_weighted_seconds
from relaqs_lab.simulation.simulator import Options
from relaqs_lab.simulation.study import Case, JobMix
from relaqs_lab.simulation.workload import Workload
from rich.console import Console
from rich.table import Table

from benchmarks.record import circumstances, headline

FAMILY = tuple(f"milestones:{which}" for which in ("70", "70x4+90", "70x2+90", "70+90", "90"))
BALANCED = ("milestones:error+70+90+95", "milestones:error+70x1.5+90+95")
POLICIES = ("fair", "relaqs", "max_sum", "shortest_remaining_time", *BALANCED, *FAMILY)
ENDS = REDUCTIONS[:2]  # of the frontier: 70 and 90 %
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # what 70 % counts; the rest is what 90 % counts
WIDTH = 110


@dataclass(frozen=True, slots=True)
class Study:
    """The runs of all policies and seeds at one time between arrivals."""

    cases: tuple[Case, ...]
    runs: tuple[ScheduleRun, ...]

    def seconds(self, policy: str) -> NDArray[np.float64]:
        """Return the mean times to REDUCTIONS of each seed, shape (seeds, 3)."""
        ran = sorted((run for run in self.runs if run.policy == policy), key=lambda run: run.seed)
        return np.array([[seconds_to(run, level) for level in REDUCTIONS] for run in ran])

    @property
    def fair_cases(self) -> list[Case]:
        """One case for each seed."""
        return sorted((case for case in self.cases if case.policy == REFERENCE), key=lambda case: case.seed)


def studied(options: argparse.Namespace, arrival: float) -> Study:
    """Return the runs at one time between arrivals; fair sharing is always one of the policies."""
    names = dict.fromkeys((REFERENCE, *options.policies.split(",")))
    mix = JobMix(core_seconds=options.core_seconds)
    cases = tuple(
        Case(name, seed, options.jobs, arrival, mix, options.cores, Options(options.epoch))
        for seed in range(options.seeds)
        for name in names
    )
    return Study(cases, tuple(run_cases(cases, options.keep, processes=1)))


def bound_alone(study: Study) -> list[Figure]:
    """Return the bound of the time to each of REDUCTIONS, as a change relative to fair sharing."""
    least = np.array(
        [least_mean_seconds(_workload(case), REDUCTIONS, case.capacity_cores) for case in study.fair_cases]
    )
    change = least / study.seconds(REFERENCE) - 1.0
    return [Figure.of(list(column)) for column in change.T]


def bound_together(study: Study, share: float) -> Figure:
    """Return the bound of both ends of the frontier at once, relative to fair sharing."""
    fair = study.seconds(REFERENCE)[:, : len(ENDS)]
    weights = np.array([share, 1.0 - share]) / fair
    least = [
        least_weighted_seconds(_workload(case), ENDS, weight, case.capacity_cores)
        for case, weight in zip(study.fair_cases, weights, strict=True)
    ]
    return Figure.of([each - 1.0 for each in least])


def reached_together(study: Study, policy: str, share: float) -> Figure:
    """Return what a policy has of the same number."""
    relative = study.seconds(policy) / study.seconds(REFERENCE)
    return Figure.of(list(share * relative[:, 0] + (1.0 - share) * relative[:, 1] - 1.0))


def _workload(case: Case) -> Workload:
    return case.mix.workload(case.arrival_seconds(), case.seed)


def policies_table(study: Study, title: str) -> Table:
    """Return the policies and the bound, one line each."""
    table = Table(title=title)
    for heading in ("policy", "error", *(f"to {level:.0%}" for level in REDUCTIONS), "worst job"):
        table.add_column(heading, justify="left" if heading == "policy" else "right", no_wrap=True)
    for row in compare(study.runs):
        changes = map(signed, (row.error_change, *row.reduced_change))
        table.add_row(policy_label(row.policy), *changes, f"{row.worst_job.mean:.1f} ×")
    table.add_row("bound of any policy, each alone", "", *map(signed, bound_alone(study)), "")
    return table


def best_together(study: Study, share: float) -> tuple[str, Figure]:
    """Return the policy that has the least of this number, and what it has."""
    names = dict.fromkeys(run.policy for run in study.runs)
    reached = {name: reached_together(study, name, share) for name in names}
    best = min(reached, key=lambda name: reached[name].mean)
    return best, reached[best]


def frontier_table(study: Study) -> Table:
    """Return the best policy for each weight of both ends, beside the bound."""
    table = Table(title="70 % and 90 % in one number")
    for heading in ("70 % counts", "best policy", "it has", "bound of any policy"):
        table.add_column(heading, justify="left" if heading == "best policy" else "right", no_wrap=True)
    for share in SHARES:
        best, reached = best_together(study, share)
        bound = bound_together(study, share)
        table.add_row(f"{share:.0%}", policy_label(best), signed(reached), signed(bound))
    return table


def parser() -> argparse.ArgumentParser:
    """Return what the command line takes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.frontier", description=__doc__.split("\n")[0])
    parser.add_argument("--arrival", default="120", help="seconds between arrivals; several with commas")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--cores", type=float, default=256.0)
    parser.add_argument("--core-seconds", type=float, default=30_000.0, help="of a query, on average")
    parser.add_argument("--epoch", type=float, default=1.0, help="seconds between plans")
    parser.add_argument("--policies", default=",".join(POLICIES), help="fair sharing is added")
    parser.add_argument("--keep", type=Path, help="a file for what is done; the next call goes on with it")
    return parser


def main(words: Sequence[str] | None = None) -> None:
    options = parser().parse_args(words)
    console = Console(width=WIDTH)
    console.print(headline(circumstances("frontier", words)))
    for arrival in map(float, options.arrival.split(",")):
        study = studied(options, arrival)
        title = (
            f"{options.jobs} queries, one every {arrival:g} s, {options.seeds} seeds, against fair sharing"
        )
        console.print(policies_table(study, title))
        console.print(frontier_table(study))


if __name__ == "__main__":
    main()
