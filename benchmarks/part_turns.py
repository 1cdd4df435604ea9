"""What lies between the turns of a model in parts that trains alone on a real Dask cluster.

    python -m benchmarks.part_turns [--passes 4] [--copies 20] [--workers 2]

Each kind of model (`benchmarks.placed_models`) trains alone, on a scheduler and workers of one thread, with
each picture several times, so that a pass takes several turns. After a pass its model is judged on rows that
were held out, which is work of the run as well. So gaps between two turns are of two kinds: *within a pass*
nothing is done but messages, and *at its end* the model is judged in the gap.

The table has medians, in milliseconds. *ms*: a turn. *between*: two of a pass. *at ends*: of passes. *lost*:
of the time within passes, the share in which no turn runs. It was asked of turns of two seconds; a turn of
parts has half a second.
"""

from __future__ import annotations

import argparse
import pickle
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.live import JobDriver, LiveJob
from benchmarks.placed_live import KINDS, SQL, ModelKind, on_workers, verdict, warehouse
from benchmarks.placed_seen import NotedPlacements, PinnedRan, SentTurns, pinned_seen
from benchmarks.record import circumstances, headline, write
from benchmarks.training_data import lay_out_digits
from relaqs.policies.registry import make_placed_policy
from relaqs.sharing.view import Kind

LOST_MOST = 0.10
SHARING = "fair"


@dataclass(frozen=True, slots=True)
class TurnGaps:
    """The turns of one run and what lies between them, in seconds.

    Attributes:
        turns: how long each lasted.
        within_passes: the gaps between two turns of one pass.
        at_ends: the gaps in which a pass is over and the model is judged.
    """

    turns: tuple[float, ...]
    within_passes: tuple[float, ...]
    at_ends: tuple[float, ...]

    @property
    def lost(self) -> float:
        """The share of the time within passes that lies between turns."""
        gaps = sum(self.within_passes)
        return gaps / (gaps + sum(self.turns))

    @classmethod
    def of(cls, pinned: Sequence[PinnedRan], sent: SentTurns) -> TurnGaps:
        """Return them for one run. A turn lasts from its first part's start to its last one's end."""
        parts: defaultdict[tuple[int, int], list[PinnedRan]] = defaultdict(list)
        for ran in pinned:
            if (own := sent.by_task.get((ran.job, ran.number))) is not None:
                parts[own.turn].append(ran)
        lasted = sorted(
            (min(ran.start_seconds for ran in turn), max(ran.end_seconds for ran in turn))
            for turn in parts.values()
        )
        judged = [at for job in {ran.job for ran in pinned} for at in sent.others[job]]
        within, ends = list[float](), list[float]()
        for (_, end), (start, _) in pairwise(lasted):
            is_judged = any(end <= at <= start for at in judged)
            (ends if is_judged else within).append(start - end)
        return cls(tuple(end - start for start, end in lasted), tuple(within), tuple(ends))


def alone(driver: JobDriver, dask: Any, kind: ModelKind, options: argparse.Namespace) -> TurnGaps:
    """Let a run train that nobody is beside, and return its turns."""
    began = time.time()
    job = LiveJob(
        kind.module,
        Kind.TRAINING,
        lambda session: kind.started(session, options.noted, None, options.passes, options.sql),
    )
    driver.run([job], np.zeros(1))
    pinned = pickle.loads(dask.run_on_scheduler(pinned_seen))
    return TurnGaps.of([ran for ran in pinned if ran.start_seconds >= began], options.sent)


def table_of(found: Sequence[tuple[str, TurnGaps]]) -> Table:
    table = Table("model", "turns", "ms", "between", "most", "at ends", "lost", f"≤ {100 * LOST_MOST:.0f} %")
    for module, gaps in found:
        within, ends = gaps.within_passes, gaps.at_ends
        table.add_row(
            module,
            f"{len(gaps.turns):,}",
            f"{1000 * np.median(gaps.turns):.0f}",
            f"{1000 * np.median(within):.0f}" if within else "–",
            f"{1000 * max(within):.0f}" if within else "–",
            f"{1000 * np.median(ends):.0f}" if ends else "–",
            f"{100 * gaps.lost:.1f} %",
            verdict(gaps.lost <= LOST_MOST),
        )
    return table


def parsed(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.part_turns",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--passes", type=int, default=4, help="that each run makes, default 4")
    parser.add_argument("--copies", type=int, default=20, help="how often each picture is there, default 20")
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread, default 2")
    parser.add_argument("--policy", default="mlf_h", help="the placed policy, default mlf_h")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    options = parsed(words)
    facts = circumstances("part_turns", words)
    options.data = warehouse(0.05)
    options.sql = SQL.replace("FROM digits", f"FROM {lay_out_digits(options.data, options.copies)}")
    options.noted, options.sent = NotedPlacements(make_placed_policy(options.policy)), SentTurns()
    with on_workers(options, options.noted, options.sent, sharing=SHARING) as (driver, dask):
        found = [(kind.module, alone(driver, dask, kind, options)) for kind in KINDS]
    Console().print(headline(facts), table_of(found), sep="\n")
    record = write("part_turns", facts, {"models": {module: asdict(gaps) for module, gaps in found}})
    print(f"Record: {record}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
