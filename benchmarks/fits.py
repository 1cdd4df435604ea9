"""What `db.fit` of scikit-learn's estimators costs beside a loop over arrays that does the same.

    python -m benchmarks.fits [--rows 300000] [--features 20] [--batches 1024,8192] [--passes 5] [--times 5]

Both learn by `partial_fit` from the same rows in batches of the same size, in one process on one thread, and
take each batch's loss before they learn from it. The loop has all rows in memory as one array. The CPU time
is that of the process, without laying out and the first pass, which reads: from that of a whole run the one
of a run of a single pass is taken. The loop draws its rows anew for each pass, as the run does. Runs of both
follow each other in pairs, and what is printed is the median of the pairs' ratios.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.base import clone
from sklearn.linear_model import SGDClassifier, SGDRegressor
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import relaqs

MODELS = {
    "SGDClassifier": SGDClassifier(loss="log_loss", random_state=0, max_iter=10**6, tol=None),
    "SGDRegressor": SGDRegressor(random_state=0, max_iter=10**6, tol=None),
    "GaussianNB": GaussianNB(),
    "StandardScaler, SGDClassifier": make_pipeline(
        StandardScaler(), SGDClassifier(loss="log_loss", random_state=0, max_iter=10**6, tol=None)
    ),
}


def fitted_seconds(db: relaqs.Session, model: Any, batch: int, passes: int) -> float:
    """Return the CPU seconds of the passes after the first, by `db.fit`."""

    def seconds(passes: int) -> float:
        started = time.process_time()
        db.fit(model, "SELECT * FROM points", target="y", batch=batch, passes=passes).result()
        return time.process_time() - started

    return seconds(passes + 1) - seconds(1)


def looped_seconds(model: Any, features: Any, target: Any, batch: int, passes: int) -> float:
    """Return the CPU seconds of a loop over arrays."""
    own = clone(model)
    last = own.steps[-1][1] if hasattr(own, "steps") else own
    front = own[:-1].fit(features[:10_000]) if hasattr(own, "steps") else None
    is_class = hasattr(last, "predict_proba")
    classes = {"classes": np.unique(target)} if is_class else {}
    started = time.process_time()
    for each in range(passes):
        order = np.random.default_rng(each).permutation(len(target))
        for first in range(0, len(target), batch):
            drawn = order[first : first + batch]
            seen, wanted = features[drawn], target[drawn]
            seen = seen if front is None else front.transform(seen)
            if hasattr(last, "coef_") or hasattr(last, "theta_"):
                if is_class:
                    chances = last.predict_proba(seen)[np.arange(len(seen)), wanted.astype(int)]
                    -np.log(np.clip(chances, 1e-15, 1.0)).mean()
                else:
                    ((last.predict(seen) - wanted) ** 2).mean()
            last.partial_fit(seen, wanted, **classes)
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--batches", default="1024,8192")
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--times", type=int, default=5)
    asked = parser.parse_args()
    draws = np.random.default_rng(0)
    features = draws.normal(size=(asked.rows, asked.features))
    target = (features[:, 0] + features[:, 1] + draws.normal(size=asked.rows) > 0).astype(np.int64)
    columns = {f"x{i}": features[:, i] for i in range(asked.features)}
    with tempfile.TemporaryDirectory() as folder:
        relaqs.shuffle(pa.table({**columns, "y": target}), Path(folder) / "points", partitions=10)
        with relaqs.connect(folder, threads=1) as db:
            for name, model in MODELS.items():
                for batch in map(int, asked.batches.split(",")):
                    pairs = [
                        (
                            fitted_seconds(db, model, batch, asked.passes),
                            looped_seconds(model, features, target, batch, asked.passes),
                        )
                        for _ in range(asked.times)
                    ]
                    ratio = statistics.median(ours / theirs for ours, theirs in pairs)
                    ours, theirs = (statistics.median(each) for each in zip(*pairs, strict=True))
                    print(
                        f"{name}, {batch} rows: {ours:.2f} s, loop {theirs:.2f} s, {ratio:.2f} x", flush=True
                    )


if __name__ == "__main__":
    main()
