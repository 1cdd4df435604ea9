"""What turns of sharded jobs bring on a slow network, and how many bytes go.

    python -m benchmarks.sharded_live [--machines 2] [--jobs 2] [--megabits 200] [--megabytes 7.5]

A machine is a worker of one thread in a network namespace of its own, whose link is limited in both
directions. That needs the rights of root; without them the benchmark says so and ends. COMP sleeps, so that
other load on this machine counts little. So it shows how the network is used, and nothing of processors.

*One after the other*: the passes of the jobs, each alone. *Together*: all at once. *On the wire*: what
agents put there in a step, by the difference of a longer and a shorter run, beside twice the model for all
machines but one. *By equation 1*: what the ratio of both would be if a group's iteration took as long as
equation 1 of Harmony says (Lee et al., ICDCS 2021, section IV-B2), by what the tasks of each job alone took.
It is the most that turns can bring.

Parameters are so large, where `--megabytes` does not say, that PULL and PUSH take as long as COMP. Jobs that
compute for longer gain less: cores that never wait are all there is to gain.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from distributed import Client, LocalCluster, Worker
from relaqs_bootstrap.arrays import FloatArray

from relaqs import Session, connect, shuffle
from relaqs.executors.dask.peer_agent import PeerAgent
from relaqs.training import Profile, Rows, ShardCourse, SubtaskSeconds, Sums, WholeParameters
from relaqs.training.protocol import ShardState

NETWORK, BRIDGE = "10.177.7", "relaqs-bridge"
PARTITIONS, ROWS, COLUMNS = 8, 800, 64
CONGESTION = "cubic"  # as Linux has it where nobody chose another one
WARM_PASSES = 3  # of each run, in which workers read and connect: not counted
LONG_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class SleptDescent:
    """Parameters of some shape that follow their sums a little, without an end."""

    shape: tuple[int, int]

    def first(self, rows: slice) -> ShardState:
        return (np.zeros(self.shape)[rows],)

    def model(self, values: FloatArray) -> FloatArray:
        return values

    def penalty(self, values: FloatArray) -> float:
        return 0.0

    def update(
        self, state: ShardState, gradient: FloatArray, pace: tuple[float, ...], rows: slice
    ) -> ShardState:
        return (state[0] - pace[0] * gradient,)

    def begin(self) -> ShardCourse:
        return ShardCourse(0, (1e-9,))

    def judge(self, course: ShardCourse, totals: Sums, penalty: float) -> ShardCourse:
        return ShardCourse(course.step + 1, course.pace, 1 / (course.step + 1))


@dataclass(frozen=True, slots=True)
class SleptTraining:
    """A job of which each row takes a time that is slept.

    Attributes:
        sql, target: as of any training job.
        megabytes: of the parameters.
        row_seconds: of COMP.
    """

    sql: str
    megabytes: float
    row_seconds: float
    target: None = None

    def begin(self, profile: Profile) -> WholeParameters:
        return WholeParameters(self.descent(profile))

    def descent(self, profile: Profile) -> SleptDescent:
        return SleptDescent((round(self.megabytes * 1e6 / 8 / COLUMNS), COLUMNS))

    def partial(self, model: FloatArray, rows: Rows) -> Sums:
        time.sleep(self.row_seconds * len(rows))
        return model + rows.features.sum(), np.asarray(0.0)

    def estimator(self, profile: Profile, model: FloatArray) -> FloatArray:
        return model


def main(arguments: Sequence[str]) -> None:
    options = _parser().parse_args(arguments)
    if not can_emulate():
        return
    with tempfile.TemporaryDirectory() as folder:
        shuffle(pa.table({"x": np.arange(ROWS) / ROWS}), Path(folder) / "points", partitions=PARTITIONS)
        with (
            emulated_machines(options.machines, options.megabits, options.congestion) as client,
            connect(folder, cluster=client, policy="weighted_fair") as db,
        ):
            row_seconds = options.seconds * options.machines / ROWS
            job = SleptTraining("SELECT x FROM points", megabytes_of(options), row_seconds)
            report(db, client, job, options)


def can_emulate() -> bool:
    """Return whether machines can be emulated here. Where they cannot, say so."""
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("tc") is None:
        print("not reached: machines are emulated by network namespaces, which need root, ip and tc")
        return False
    if Path("/sys/class/net", BRIDGE).exists():
        print(
            f"not reached: the network {BRIDGE} is there. Another run has it, or one was killed and left it; "
            f"then `ip link del {BRIDGE}`, and `ip netns del` for each relaqs-m… of `ip netns list`"
        )
        return False
    return True


def megabytes_of(options: argparse.Namespace) -> float:
    """Return the parameters of a job: as asked, or such that COMM takes as long as COMP."""
    if options.megabytes is not None:
        return float(options.megabytes)
    sent_share = 2 * (options.machines - 1) / options.machines  # of the parameters, by each machine in a step
    return float(options.seconds * options.megabits / 8 / sent_share)


def report(db: Session, client: Client, job: SleptTraining, options: argparse.Namespace) -> None:
    """Print the figures of all repetitions."""
    ratios, models, steps, wires = [], [], [], []
    begun, waited = time.monotonic(), waited_seconds()
    for _ in range(options.times):
        counts = [_wire_bytes(client)]
        seconds_of(db, job, 1, 1)
        counts.append(_wire_bytes(client))
        found = [seconds_of(db, job, 1, options.passes) for _ in range(options.jobs)]
        counts.append(_wire_bytes(client))
        alone = sum(each.seconds for each in found)
        together = seconds_of(db, job, options.jobs, options.passes).seconds
        steps_more = options.jobs * (options.passes - 1)
        wires.append((counts[2] - counts[1] - options.jobs * (counts[1] - counts[0])) / steps_more / 1e6)
        ratios.append(alone / together)
        steps.append(alone / options.jobs / options.passes)
        parts = [part for each in found for part in each.subtasks]
        comp, comm = sum(part.comp for part in parts), sum(part.comm for part in parts)
        models.append(alone / options.passes / max(comp, comm, steps[-1]))
    share = (waited_seconds() - waited) / (time.monotonic() - begun)
    print(f"a step alone: {told(steps)} s, of which COMP {options.seconds} s, {job.megabytes:.1f} MB")
    print(f"one after the other / together: {told(ratios)}; by equation 1: {told(models)}")
    must = 2 * job.megabytes * (options.machines - 1)
    print(f"MB on the wire in a step: {told(wires)}, where {must:.2f} must go")
    print(f"somebody waited for a core in {share:.0%} of the seconds")


@dataclass(frozen=True, slots=True)
class TimedRuns:
    """Runs at once: the seconds from the first pass that counts to the last, and what iterations had."""

    seconds: float
    subtasks: list[SubtaskSeconds]


def seconds_of(db: Session, job: SleptTraining, runs: int, passes: int) -> TimedRuns:
    """Return what came of runs at once."""
    begun, started = [], []
    for _ in range(runs):
        begun.append(time.monotonic())
        started.append(db.train(job, parameters="sharded", max_steps=passes + WARM_PASSES))
    for run in started:
        run.result(timeout=LONG_SECONDS)

    def at(step: int) -> list[float]:
        return [first + run.steps[step].elapsed_seconds for first, run in zip(begun, started, strict=True)]

    parts = [run.subtask_seconds for run in started]
    return TimedRuns(max(at(-1)) - min(at(WARM_PASSES - 1)), [part for part in parts if part is not None])


def waited_seconds() -> float:
    """Return for how long somebody has waited for a core since this machine was started, in all."""
    some = Path("/proc/pressure/cpu").read_text().split()
    return int(some[4].removeprefix("total=")) / 1e6


def told(values: Sequence[float]) -> str:
    """Return a mean and its standard error, for people. One value has no error."""
    mean = f"{statistics.mean(values):.2f}"
    return f"{mean} ± {statistics.stdev(values) / len(values) ** 0.5:.2f}" if len(values) > 1 else mean


def _wire_bytes(client: Client) -> int:
    def sent(dask_worker: Worker) -> int:
        agent = dask_worker.plugins.get(PeerAgent.name)
        return agent.sent_bytes if isinstance(agent, PeerAgent) else 0

    return sum(client.run(sent).values())


@contextmanager
def emulated_machines(count: int, megabits: int, congestion: str = CONGESTION) -> Iterator[Client]:
    """Give the client of a cluster whose workers are in namespaces of their own.

    congestion: the control of TCP, by which it finds out what a link carries (tcp(7)).
    """
    with ExitStack() as stack:
        _run(f"ip link add {BRIDGE} type bridge")
        stack.callback(_run, f"ip link del {BRIDGE}")
        _run(f"ip addr add {NETWORK}.254/24 dev {BRIDGE}")
        _run(f"ip link set {BRIDGE} up")
        options: dict[str, Any] = {"host": f"{NETWORK}.254", "dashboard_address": ":0"}
        cluster = stack.enter_context(LocalCluster(n_workers=0, **options))
        for machine in range(count):
            stack.enter_context(_machine(machine, megabits, congestion, cluster.scheduler_address))
        client = stack.enter_context(Client(cluster, set_as_default=False))
        client.wait_for_workers(count, timeout=LONG_SECONDS)
        yield client


@contextmanager
def _machine(number: int, megabits: int, congestion: str, scheduler: str) -> Iterator[None]:
    name, inside, outside = f"relaqs-m{number}", f"relaqs-i{number}", f"relaqs-o{number}"
    limit = f"root tbf rate {megabits}mbit burst 256kb latency 300ms"
    with ExitStack() as stack:
        _run(f"ip netns add {name}")
        stack.callback(_run, f"ip netns del {name}")
        _run(f"ip link add {inside} netns {name} type veth peer name {outside}")
        stack.callback(_run, f"ip link del {outside}")  # else the system takes it away some time later
        _run(f"ip link set {outside} master {BRIDGE} up")
        _run(f"ip -n {name} addr add {NETWORK}.{number + 1}/24 dev {inside}")
        _run(f"ip -n {name} link set {inside} up")
        _run(f"ip -n {name} link set lo up")
        route = f"{NETWORK}.0/24 dev {inside} proto kernel scope link src {NETWORK}.{number + 1}"
        _run(f"ip -n {name} route change {route} congctl {congestion}")
        _run(f"tc -n {name} qdisc add dev {inside} {limit}")
        _run(f"tc qdisc add dev {outside} {limit}")
        worker = ["-m", "dask", "worker", scheduler, "--no-nanny", "--nthreads", "1", "--no-dashboard"]
        command = ["ip", "netns", "exec", name, sys.executable, *worker, "--host", f"{NETWORK}.{number + 1}"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                yield
            finally:
                process.kill()


def _run(command: str) -> None:
    subprocess.run(command.split(), check=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sharded_live")
    parser.add_argument("--machines", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--megabits", type=int, default=200, help="a second, of each machine's link")
    parser.add_argument(
        "--congestion", default=CONGESTION, help="control of TCP, such as cubic (the default) or bbr"
    )
    parser.add_argument("--megabytes", type=float, help="of the parameters")
    parser.add_argument("--seconds", type=float, default=0.3, help="of COMP in a step, on each machine")
    parser.add_argument("--passes", type=int, default=10)
    parser.add_argument("--times", type=int, default=3)
    return parser


if __name__ == "__main__":
    main(sys.argv[1:])
