"""Do the jobs of two client processes get the cores they are planned to get? On a real cluster of processes.

    python -m benchmarks.cluster_shares [--scale 4] [--data WAREHOUSE] [--changes 6] [--seconds 15]

A scheduler, two workers of one thread, and two clients with six queries and two training jobs, started again
whenever they end. First with weights that are turned round every three seconds, shared by weight: how far the
measured core-time of each second is from the plan, and how soon a change shows. Then under the default
policy, whose plans change by themselves; at the end one client is killed: when its tasks have ended, when its
share is given to others, and whether the answers of the other client are those of an undisturbed run.

What was due to a job is its planned share of the core-time that ran, among the jobs that had tasks, had cores
been divided at will (`benchmarks.cluster_due`); the figure is how far the job that is farthest off was from
it, over a second, and over the time in which two core-seconds ran, which is as long on a machine that does
nothing else. Everything is seen from the scheduler (`benchmarks.cluster_observer`). Core-time is as charged.
DASK_RELAQS__CREDIT_CORE_SECONDS=0.1 before the command sets what an idle job may be owed.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from distributed import Client
from distributed.protocol import pickle
from relaqs_tpch import query
from rich.console import Console
from rich.table import Table

import relaqs
from benchmarks import record, tpch
from benchmarks.cluster_client import QUERIES, SLOTS, fingerprint
from benchmarks.cluster_figures import Figures, epochs
from benchmarks.cluster_observer import Observed, Observer, Planned, observed
from relaqs.executors.dask.plugin import RelaqsPlugin

WORKERS = 2
OF_CLIENT = ((0, 1, 2, 6), (3, 4, 5, 7))  # slots: three queries and a training job each
WEIGHTS = (8.0, 4.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0)  # shares of 40, 20, 10, 10, 5, 5, 5 and 5 %
HOLD_SECONDS = 3.0  # of the weights, between changes
WARM_SECONDS = 5.0  # to plan, build hoists and look at the training data, which is not measured
WAIT_SECONDS = 120.0
ANSWERS = 3  # of the other client, after one was killed
CORE_EPOCH = "each two core-seconds that ran"


class WrongAnswerError(Exception):
    """A client's answer is not that of an undisturbed run."""


@dataclass(frozen=True, slots=True)
class Followed:
    """How far the job that is farthest off was from what was due, over spans of time: 0.05 is five points."""

    what: str
    spans: int
    mean_deviation: float
    ninth_decile_deviation: float
    largest_deviation: float

    @classmethod
    def of(cls, what: str, figures: Figures, spans: Iterable[tuple[float, float]]) -> Followed:
        found = sorted(each for span in spans if not math.isnan(each := figures.deviation(*span)))
        if not found:
            return cls(what, 0, math.nan, math.nan, math.nan)
        return cls(what, len(found), statistics.mean(found), found[int(0.9 * (len(found) - 1))], found[-1])


@dataclass(frozen=True, slots=True)
class Under:
    """A cluster under one policy. task_seconds, task_core_seconds: of a task, on average.

    cores: that really ran, on average; fewer than there are where others use the machine, too.
    machine_idle_share: of the time of the machine's own cores, on which clients and scheduler run as well.
    """

    policy: str
    followed: tuple[Followed, ...]
    idle_share: float
    machine_idle_share: float
    cores: float
    task_seconds: float
    task_core_seconds: float

    @classmethod
    def of(
        cls,
        policy: str,
        seen: Observed,
        begin: float,
        end: float,
        machine_idle_share: float,
        *followed: Followed,
    ) -> Under:
        runs = [run for run in seen.runs if begin <= run.start_seconds and run.end_seconds <= end]
        core_seconds = [run.core_seconds for run in runs]
        return cls(
            policy,
            followed,
            Figures(seen, WORKERS).idle_share(begin, end),
            machine_idle_share,
            sum(core_seconds) / (end - begin),
            statistics.mean(run.end_seconds - run.start_seconds for run in runs),
            statistics.mean(core_seconds),
        )


@dataclass(frozen=True, slots=True)
class Killed:
    """Seconds from a client's death to the end of its last task, and until the others were given its share.

    answers: of the other client after that, compared with an undisturbed run.
    """

    last_task_seconds: float
    redistributed_seconds: float
    answers: int


class ClientProcess:
    """A client, and the answers it has given so far: (slot, fingerprint)."""

    def __init__(self, address: str, warehouse: Path, policy: str, slots: Sequence[int]) -> None:
        words = [address, str(warehouse), policy, ",".join(map(str, slots))]
        self.answers: list[tuple[int, str]] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.cluster_client", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def weigh(self, weights: Sequence[float]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(dict(enumerate(weights))) + "\n")
        self.process.stdin.flush()

    def end(self) -> None:
        """Let it stop its jobs and end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(WAIT_SECONDS)
        self._reader.join()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said = json.loads(line)
            self.answers.append((said["slot"], said["answer"]))


@contextmanager
def cluster(workers: int = WORKERS) -> Iterator[str]:
    """Start a scheduler and workers of one thread as processes of their own. Give the scheduler's address.

    They end with the block, also where it ends by ctrl-C or SIGTERM.
    """
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    host = ["--host", "127.0.0.1", "--port", str(port), "--no-dashboard", "--no-show"]
    threads = ["--nworkers", str(workers), "--nthreads", "1", "--no-dashboard"]
    commands = [["scheduler", *host], ["worker", address, *threads]]
    processes = [
        subprocess.Popen([sys.executable, "-m", "dask", *command], stderr=subprocess.DEVNULL)
        for command in commands
    ]
    try:
        yield address
    finally:
        for process in reversed(processes):  # workers first: without a scheduler they would look for it
            process.terminate()  # so that the nanny takes its workers along
            process.wait(WAIT_SECONDS)


@contextmanager
def clients(warehouse: Path, policy: str) -> Iterator[tuple[Client, tuple[ClientProcess, ClientProcess]]]:
    """Give an observing Dask client, and both client processes, warm."""
    with ExitStack() as stack:
        address = stack.enter_context(cluster())
        dask = stack.enter_context(Client(address, timeout=WAIT_SECONDS, set_as_default=False))
        dask.wait_for_workers(WORKERS, timeout=WAIT_SECONDS)
        dask.register_plugin(RelaqsPlugin())
        dask.register_plugin(Observer())
        first, second = (ClientProcess(address, warehouse, policy, slots) for slots in OF_CLIENT)
        stack.callback(first.process.kill)
        stack.callback(second.process.kill)
        while len(jobs_of(seen_by(dask))) < SLOTS:
            time.sleep(0.2)
        time.sleep(WARM_SECONDS)
        yield dask, (first, second)


def machine_idle() -> float:
    """Return the share of the time since the last call in which the machine's cores had nothing to do."""
    return float(psutil.cpu_times_percent().idle) / 100.0


def seen_by(dask: Client) -> Observed:
    seen: Observed = pickle.loads(dask.run_on_scheduler(observed))
    return seen


def jobs_of(seen: Observed) -> set[str]:
    return {run.job for run in seen.runs}


def measure_changes(warehouse: Path, changes: int) -> tuple[Under, list[float]]:
    """Turn weights round again and again. Return how shares followed, and the delays of all changes."""
    with clients(warehouse, "weighted_fair") as (dask, both):
        moments = []
        machine_idle()
        for number in range(changes + 1):
            moments.append(time.time())
            for client in both:
                client.weigh(WEIGHTS if number % 2 == 0 else WEIGHTS[::-1])
            time.sleep(HOLD_SECONDS)
        end, idle = time.time(), machine_idle()
        seen = seen_by(dask)
        for client in both:
            client.end()
    figures = Figures(seen, WORKERS)
    steady = [span for moment in moments for span in epochs(moment + 1.0, moment + HOLD_SECONDS)]
    turned = [(moment, moment + 1.0) for moment in moments[1:]]
    under = Under.of(
        "weighted_fair",
        seen,
        moments[0],
        end,
        idle,
        Followed.of("each second while weights stay", figures, steady),
        Followed.of("the second after a change", figures, turned),
        Followed.of(CORE_EPOCH, figures, figures.core_epochs(moments[0], end)),
    )
    return under, [figures.delay(moment, moment + HOLD_SECONDS) for moment in moments[1:]]


def measure_policy(warehouse: Path, seconds: float, truth: Sequence[str]) -> tuple[Under, Killed]:
    """Let the default policy plan, and kill one client at the end."""
    with clients(warehouse, "relaqs") as (dask, (victim, survivor)):
        machine_idle()
        begin = time.time()
        time.sleep(seconds)
        end, idle = time.time(), machine_idle()
        victim.process.send_signal(signal.SIGKILL)
        before = len(survivor.answers)
        while len(survivor.answers) < before + ANSWERS and time.time() < end + WAIT_SECONDS:
            time.sleep(0.2)
        seen = seen_by(dask)
        survivor.end()
    for slot, answer in survivor.answers:
        if answer != truth[slot]:
            raise WrongAnswerError(f"query {QUERIES[slot]} has another answer after a client was killed")
    figures = Figures(seen, WORKERS)
    under = Under.of(
        "relaqs",
        seen,
        begin,
        end,
        idle,
        Followed.of("each second", figures, epochs(begin, end)),
        Followed.of(CORE_EPOCH, figures, figures.core_epochs(begin, end)),
    )
    return under, after_death(seen, end, len(survivor.answers) - before)


def after_death(seen: Observed, killed: float, answers: int) -> Killed:
    """Return how soon a killed client's tasks had ended, and its jobs were in no plan any more."""
    [*_, last_before] = [plan for plan in seen.plans if plan.at_seconds <= killed]
    mine = {job for job in last_before.cores if session_of(job) not in sessions(seen.plans[-1])}
    ends = [run.end_seconds for run in seen.runs if run.job in mine]
    later = (plan for plan in seen.plans if plan.at_seconds > killed)
    freed = next(plan.at_seconds for plan in later if not mine & set(plan.cores))
    return Killed(max([0.0, *(end - killed for end in ends)]), freed - killed, answers)


def sessions(plan: Planned) -> set[str]:
    return {session_of(job) for job in plan.cores}


def session_of(job: str) -> str:
    """Return which session a job's name on the cluster says it is of."""
    return job.rpartition("-")[2]


def undisturbed(warehouse: Path) -> list[str]:
    """Return the fingerprints of the queries' answers, from a session without a cluster."""
    with relaqs.connect(warehouse) as db:
        return [fingerprint(db.online_sql(query(number)).result().estimate) for number in QUERIES]


def table_of(unders: Sequence[Under]) -> Table:
    table = Table("policy", "over", "spans", "mean", "90 %", "largest", title="Points off what was due")
    for under in unders:
        for each in under.followed:
            off = (each.mean_deviation, each.ninth_decile_deviation, each.largest_deviation)
            table.add_row(under.policy, each.what, str(each.spans), *(f"{100 * part:.1f}" for part in off))
    return table


def described(under: Under) -> str:
    return (
        f"{under.policy}: {under.idle_share:.1%} of the workers' time was idle while work waited, and "
        f"{under.machine_idle_share:.1%} of that of the machine's cores in any case; "
        f"{under.cores:.2f} of {WORKERS} cores ran; a task took {1e3 * under.task_core_seconds:.0f} ms of a "
        f"core in {1e3 * under.task_seconds:.0f} ms."
    )


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cluster_shares",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--scale", type=float, default=4.0, help="of the TPC-H data, default 4")
    parser.add_argument("--data", type=Path, help="a warehouse that has it, instead of making one")
    parser.add_argument(
        "--changes", type=int, default=6, help="how often weights are turned round, default 6"
    )
    parser.add_argument("--seconds", type=float, default=15.0, help="under the default policy, default 15")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    options = arguments(words)
    facts = record.circumstances("cluster_shares", words)
    warehouse = options.data or tpch.warehouse(options.scale)[0]
    truth = undisturbed(warehouse)
    by_weight, delays = measure_changes(warehouse, options.changes)
    by_policy, killed = measure_policy(warehouse, options.seconds, truth)
    console = Console()
    console.print(record.headline(facts), table_of([by_weight, by_policy]), sep="\n")
    console.print(described(by_weight), described(by_policy), sep="\n")
    console.print(f"A change showed after {', '.join(f'{each:.2f}' for each in delays)} s.")
    console.print(
        f"A client killed: its last task ended after {killed.last_task_seconds:.2f} s, and its share was "
        f"others' after {killed.redistributed_seconds:.2f} s; {killed.answers} answers of the other client "
        "are those of an undisturbed run."
    )
    content = {
        "under": [asdict(by_weight), asdict(by_policy)],
        "delay_seconds": delays,
        "killed": asdict(killed),
    }
    console.print(f"{record.NOT_OFFICIAL} Record: {record.write('cluster_shares', facts, content)}")


if __name__ == "__main__":
    try:
        main()
    except WrongAnswerError as error:
        sys.exit(f"wrong answer: {error}")
