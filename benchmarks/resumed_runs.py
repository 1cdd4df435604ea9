"""Kills runs at drawn moments, goes on in a new process, and compares with a run that nobody killed.

    python -m benchmarks.resumed_runs [--kills 100] [--seed 0] [--kinds fit,trees,...] [--lives 4]

Each run is killed by SIGKILL up to four times, after a drawn number of states and milliseconds, and gone on
with by `db.resume` in another process. At its end all its losses and its model, or what its function
returned, must be those of the run that was never killed, to the last bit. It exits with 1 where any differ,
or where a kind of run is over too soon to be killed that often.
"""

from __future__ import annotations

import argparse
import os
import pickle
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle  # noqa: F401  (all is imported once, before lives begin)
import numpy as np
from sklearn.linear_model import LogisticRegression, SGDClassifier

import relaqs
from relaqs.training import BoostedClassifier, MiniBatchPerceptron

SQL = "SELECT x, z, late FROM points"
ROWS = 8_000
EVERY_SECONDS = 0.001  # between two states that are kept: but for the share of time that this may take
LIVES_SECONDS = 120.0  # of one process, at most, until it has kept the states that are waited for
RUNS_PER_KILL = 5  # at most, of a kind that is over before it is killed


def descended(ctx: Any, passes: int) -> bytes:
    """Learn a logistic regression by steps of 256 rows, and return its coefficients."""
    first, weights = ctx.load((0, np.zeros(2)))
    for each in range(first, passes):
        for features, target in ctx.batches(SQL, rows=256, target="late", seed=each):
            off = 1 / (1 + np.exp(-features @ weights)) - target
            weights = weights - 0.3 * features.T @ off / len(off)
            if not ctx.report(float(np.abs(off).mean())):
                return bytes(weights.tobytes())
            ctx.save((each, weights))
            time.sleep(0.002)
    return bytes(weights.tobytes())


def begin_fit(db: relaqs.Session, **keeping: Any) -> Any:
    model = SGDClassifier(loss="log_loss", max_iter=8, tol=None)
    return db.fit(model, SQL, target="late", batch=128, held_out=0.2, **keeping)


def begin_passes(db: relaqs.Session, **keeping: Any) -> Any:
    return db.fit(LogisticRegression(C=5.0, tol=1e-12), SQL, target="late", **keeping)


def begin_trees(db: relaqs.Session, **keeping: Any) -> Any:
    return db.train(BoostedClassifier(SQL, "late", trees=8, depth=3), held_out=0.2, **keeping)


def begin_elastic(db: relaqs.Session, **keeping: Any) -> Any:
    job = MiniBatchPerceptron(SQL, target="late", hidden=(8,), passes_most=6, tolerance=0.0)
    return db.train(job, batch="elastic", **keeping)


def begin_function(db: relaqs.Session, **keeping: Any) -> Any:
    return db.run(descended, {"passes": 3}, **keeping)


def begin_search(db: relaqs.Session, **keeping: Any) -> Any:
    model, space = SGDClassifier(loss="log_loss"), {"alpha": [1e-4, 1e-3, 1e-2, 1e-1]}
    return db.search(model, space, SQL, target="late", passes=3, stop=None, abreast=2, **keeping)


KINDS: Mapping[str, Callable[..., Any]] = {
    "fit": begin_fit,
    "passes": begin_passes,
    "trees": begin_trees,
    "elastic": begin_elastic,
    "function": begin_function,
    "search": begin_search,
}


def told(run: Any) -> bytes:
    """Return all that a run gives, once it is over."""
    given = run.result()
    if hasattr(given, "save_raw"):
        given = bytes(given.save_raw())
    elif not isinstance(given, bytes):
        own = given.coefs_ if hasattr(given, "coefs_") else [given.coef_]
        given = [each.tobytes() for each in own]
    trials = [(dict(each.parameters), each.losses) for each in getattr(run, "trials", ())]
    return pickle.dumps((given, trials or run.losses, str(run.stop_reason)))


LAY_OUT = f"""
import sys, duckdb, relaqs
x, z, noise = (f"hash(i * {{k}}) % 1000 / 1000" for k in (1, 7, 13))
late = f"{{x}} + {{z}} + {{noise}} / 2 > 1.2 AS late"
rows = f"SELECT {{x}} AS x, {{z}} AS z, {{late}} FROM range({ROWS}) AS r(i)"
relaqs.shuffle(duckdb.sql(rows), sys.argv[1] + "/data/points", partitions=10)
"""


@dataclass
class Killed:
    """A run that is killed again and again. Each life is a process of its own.

    Attributes:
        kind: of the run.
        data: the folder of its rows.
        path: of its checkpoint. Its results are beside it.
        draws: of the moments.
        kills: how many there were.
    """

    kind: str
    data: Path
    path: Path
    draws: random.Random
    kills: int = field(default=0)

    def uninterrupted(self) -> bytes:
        """Return what the run gives that nobody kills and nothing keeps."""
        self._wait(self._life(lambda db: KINDS[self.kind](db)))
        return self._given.read_bytes()

    def gone_on_with(self, kills_most: int) -> bytes:
        """Return what it gives at its end, killed up to so many times."""
        self.path.unlink(missing_ok=True)
        self._given.unlink(missing_ok=True)
        keeping = {"checkpoint": self.path, "checkpoint_seconds": EVERY_SECONDS}
        process = self._life(lambda db: KINDS[self.kind](db, **keeping))
        for _ in range(kills_most):
            if self._is_over_before(process, self.draws.randrange(1, 8), self.draws.uniform(0, 0.03)):
                break
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            self.kills += 1
            process = self._life(lambda db: db.resume(self.path))
        self._wait(process)
        return self._given.read_bytes()

    @property
    def _given(self) -> Path:
        return self.path.with_suffix(".given")

    def _life(self, begin: Callable[[relaqs.Session], Any]) -> int:
        """Return the process in which a run begins. It ends with the run."""
        if process := os.fork():
            return process
        code = 1
        try:
            with relaqs.connect(self.data, threads=2) as db:
                given = told(begin(db))
            draft = self.path.with_suffix(".draft")
            draft.write_bytes(given)
            draft.replace(self._given)
            code = 0
        finally:
            os._exit(code)

    def _is_over_before(self, process: int, states: int, seconds: float) -> bool:
        """Wait for new states and then for some time more. Return whether the process ended before.

        Raises AssertionError, and ends the process, where it keeps no more states.
        """
        seen: set[int] = set()
        end_seconds = time.monotonic() + LIVES_SECONDS
        while len(seen) <= states:
            if time.monotonic() >= end_seconds:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
                raise AssertionError(
                    f"the run {self.kind!r} has kept {len(seen)} states in {LIVES_SECONDS:g} s, and goes on"
                )
            if self._given.exists():
                return True
            if self.path.exists():
                seen.add(self.path.stat().st_mtime_ns)
            if os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return True
            time.sleep(0.001)
        time.sleep(seconds)
        return self._given.exists()

    def _wait(self, process: int) -> None:
        _, status = os.waitpid(process, 0)
        if os.waitstatus_to_exitcode(status):
            raise AssertionError(f"a process of the run {self.kind!r} failed; see what it has printed")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, help="of each kind of run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--lives", type=int, default=4, help="the most kills of one run")
    asked, failed = parser.parse_args(arguments), 0
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", LAY_OUT, folder], check=True)  # this process has no threads
        for kind in asked.kinds.split(","):
            run = Killed(kind, Path(folder) / "data", Path(folder) / f"{kind}.run", random.Random(asked.seed))
            wanted, runs, differ = run.uninterrupted(), 0, 0
            while run.kills < asked.kills and runs < RUNS_PER_KILL * asked.kills:
                runs, differ = runs + 1, differ + (run.gone_on_with(asked.lives) != wanted)
            print(f"{kind}: {runs} runs, {run.kills} kills, {differ} differ from the uninterrupted run")
            failed += differ > 0 or run.kills < asked.kills
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
