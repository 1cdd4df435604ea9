"""The simulator over machines against published runs: mean completion times on AdaptDL's workloads.

    python -m benchmarks.published_gangs FOLDER --policies tiresias,optimus,pollux --workloads 6

FOLDER is `simulator` of AdaptDL's artifact (branch osdi21-artifact), with `traces` and `workloads` in it. The
published figures are those of its own simulator: 16 nodes of 4 GPUs, a plan every 60 s, 30 s a restart.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from relaqs_lab.simulation.machines.machine_simulator import Timing, simulate_gangs
from relaqs_lab.simulation.machines.workloads import read_workload
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from relaqs.policies.registry import make_slot_policy
from relaqs.sharing.gangs import Nodes

PUBLISHED_SECONDS = {  # workloads 1 to 8
    "tiresias": (2473.65, 5144.96, 3876.26, 3280.26, 3501.01, 3469.69, 5479.91, 5079.71),
    "optimus": (4087.06, 6913.88, 3944.00, 5967.75, 5656.25, 5301.88, 7290.86, 6293.79),
    "pollux": (2088.77, 3322.94, 2188.49, 2720.98, 2673.70, 2446.13, 3616.14, 2951.91),
}


def mean_completion_seconds(folder: Path, policy: str, workload: int) -> float:
    """Return the mean time from arrival to end of the jobs of one workload under one policy."""
    jobs = read_workload(folder, f"workloads/workload-{workload}.csv")
    timing = Timing(round_seconds=60.0, rescale_seconds=30.0)
    outcome = simulate_gangs(jobs, make_slot_policy(policy), Nodes.equal(16, 4), timing)
    return float(outcome.completion_seconds.mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--policies", default="tiresias,optimus,pollux")
    parser.add_argument("--workloads", default="1,2,3,4,5,6,7,8")
    chosen = parser.parse_args()
    workloads = [int(each) for each in chosen.workloads.split(",")]
    table = Table("policy", "workload", "published, s", "ours, s", "off", "took, s", box=SIMPLE_HEAD)
    for policy in chosen.policies.split(","):
        published = [PUBLISHED_SECONDS[policy][each - 1] for each in workloads]
        ours = []
        for workload, theirs in zip(workloads, published, strict=True):
            started = time.perf_counter()
            ours.append(mean_completion_seconds(chosen.folder, policy, workload))
            took = time.perf_counter() - started
            table.add_row(policy, str(workload), *_compared(theirs, ours[-1]), f"{took:.1f}")
        count = len(workloads)
        table.add_row(policy, "mean", *_compared(sum(published) / count, sum(ours) / count), "")
    Console().print(table)


def _compared(theirs: float, ours: float) -> tuple[str, str, str]:
    return f"{theirs:,.0f}", f"{ours:,.0f}", f"{ours / theirs - 1:+.1%}".replace("-", "−")


if __name__ == "__main__":
    main()
