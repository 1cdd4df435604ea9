"""K-means by mini-batches: each centre is the mean of the rows that were nearest to it so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.training.algorithms.estimators import fitted
from relaqs.training.algorithms.k_means import cluster_sums, first_centres
from relaqs.training.arguments import check_count, require
from relaqs.training.elastic.protocol import MiniBatches
from relaqs.training.profile import Profile
from relaqs.training.rows import Rows, Sums

if TYPE_CHECKING:
    import sklearn.cluster


@dataclass(frozen=True, slots=True)
class Centres:
    """Where clusters are, shape (clusters, features), and how many rows each has had, shape (clusters,)."""

    places: FloatArray
    counts: FloatArray


@dataclass(frozen=True, slots=True)
class MiniBatchKMeans(MiniBatches):
    """Clusters around centres that move with each mini-batch, as scikit-learn's MiniBatchKMeans moves them.

    Each row counts the same for its centre, whatever the size of its mini-batch, so there is no learning
    rate. Clusters with few rows are not moved elsewhere, as with scikit-learn's `reassignment_ratio=0`. The
    loss is the mean squared distance to the nearest centre. Source: Sculley 2010, Web-scale k-means.

    Args:
        sql: the SELECT of the rows. Every column is a feature.
        clusters: how many clusters to find.
        start_rows: and all that `MiniBatches` has.

    >>> import duckdb, relaqs
    >>> from relaqs.training import MiniBatchKMeans
    >>> rows = duckdb.sql("SELECT 10 * (i % 2) + (i % 3) AS x FROM range(600) AS t(i)")
    >>> layout = relaqs.shuffle(rows, "warehouse/points", partitions=10, force=True)
    >>> with relaqs.connect("warehouse", threads=2) as db:
    ...     model = db.train(MiniBatchKMeans("SELECT x FROM points", clusters=2, passes_most=1)).result()
    >>> sorted(model.cluster_centers_.ravel().round(6).tolist())
    [1.0, 11.0]
    """

    sql: str
    clusters: int = 8

    target: ClassVar[None] = None

    def __post_init__(self) -> None:
        MiniBatches.__post_init__(self)
        require("sklearn")
        check_count("clusters", self.clusters)

    def begin(self, profile: Profile) -> Centres:
        return Centres(first_centres(profile, self.clusters, self.seed), np.zeros(self.clusters))

    def rate(self, progress: float) -> float:
        return 1.0

    def partial(self, state: Centres, rows: Rows, draw: int) -> Sums:
        """Return the rows' squared distances, and the clusters' sums of rows and counts."""
        totals, counts, inertia = cluster_sums(state.places, rows)
        return inertia, totals, counts

    def gradients(self, sums: Sums) -> Sums:
        return ()

    def update(self, state: Centres, sums: Sums, rows: int, rate: float) -> Centres:
        _, totals, new = sums
        counts = state.counts + new
        means = (state.places * state.counts[:, None] + totals) / np.maximum(counts, 1.0)[:, None]
        return Centres(np.where(new[:, None] > 0, means, state.places), counts)

    def evaluate(self, state: Centres, rows: Rows) -> Sums:
        return (cluster_sums(state.places, rows)[2],)

    def estimator(self, profile: Profile, state: Centres) -> sklearn.cluster.MiniBatchKMeans:
        """Return the fitted estimator, without what it does not know: `labels_`, `inertia_`."""
        from sklearn.cluster import MiniBatchKMeans as Estimator

        estimator = Estimator(self.clusters, init=state.places, n_init=1, max_iter=1, reassignment_ratio=0.0)
        estimator.fit(state.places)  # each centre is its own cluster: this sets up what `predict` needs
        del estimator.labels_, estimator.inertia_
        return fitted(estimator, profile.names, cluster_centers_=state.places)
