"""K-means by Lloyd's algorithm, and by mini-batches: a centre is the mean of its rows so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray
from scipy import sparse

from relaqs.arguments import ArgumentError, check_not_negative, check_whole
from relaqs.plugins import require
from relaqs.training.algorithms import fitted
from relaqs.training.protocol import MiniBatches, ShardCourse, ShardState, WholeParameters
from relaqs.training.rows import Profile, Rows, Sums

if TYPE_CHECKING:
    import sklearn.cluster


@dataclass(frozen=True, slots=True)
class KMeans:
    """Clusters of rows around centres. The loss is the mean squared distance to the nearest centre.

    A cluster that loses all its rows keeps its centre. (scikit-learn moves it to the farthest row.) The
    centres can lie in shards on the workers of a cluster: `db.train(job, parameters="sharded")`.

    Args:
        sql: the SELECT of the rows. Every column is a feature.
        clusters: how many clusters to find.
        tolerance: training has converged when the centres move by less than this share of the features'
            mean variance, squared and summed. 0 waits until they stand still.
        seed: of the initial centres, which k-means++ chooses from a sample.

    >>> from relaqs.training import KMeans
    >>> sql = "SELECT 10 * (x % 2) + (x % 3) AS x FROM numbers WHERE x < 600"
    >>> model = db.train(KMeans(sql, clusters=2)).result()
    >>> sorted(model.cluster_centers_.ravel().round(6).tolist())
    [1.0, 11.0]
    """

    sql: str
    clusters: int = 8
    tolerance: float = 1e-4
    seed: int = 0

    target: ClassVar[None] = None

    def __post_init__(self) -> None:
        require("sklearn")
        check_whole("clusters", self.clusters)
        check_whole("seed", self.seed, least=0)
        check_not_negative("tolerance", self.tolerance)

    def begin(self, profile: Profile) -> WholeParameters:
        return WholeParameters(self.descent(profile))

    def descent(self, profile: Profile) -> LloydDescent:
        """Return how the centres begin, move and are judged, in shards or not."""
        centres = first_centres(profile, self.clusters, self.seed)
        return LloydDescent(centres, profile.row_count, self.tolerance * float(profile.variance.mean()))

    def partial(self, model: FloatArray, rows: Rows) -> Sums:
        """Return the clusters' sums of rows with their counts as the last column, and the distances."""
        totals, counts, inertia = cluster_sums(model, rows)
        return np.column_stack([totals, counts]), inertia

    def estimator(self, profile: Profile, model: FloatArray) -> sklearn.cluster.KMeans:
        """Return the fitted estimator, without what it does not know: `labels_`, `inertia_`, `n_iter_`."""
        from sklearn.cluster import KMeans as Estimator

        estimator = Estimator(self.clusters, init=model, n_init=1, max_iter=1, tol=self.tolerance)
        estimator.fit(model)  # each centre is its own cluster: this sets up what `predict` needs
        del estimator.labels_, estimator.inertia_, estimator.n_iter_
        return fitted(estimator, profile.names, cluster_centers_=model)


@dataclass(frozen=True, slots=True)
class LloydDescent:
    """Centres that move to the means of their rows. Source: Lloyd, Least Squares Quantization in PCM, 1982.

    The parameters have a row for each cluster: its centre, and how far it moved there from the one before,
    squared. So whoever has all of them knows whether they stand still.

    Attributes:
        start: the first centres, shape (clusters, features).
        row_count: of the training rows.
        least_move: the centres' moves, squared and summed, from which on they stand still.
    """

    start: FloatArray
    row_count: int
    least_move: float

    @property
    def shape(self) -> tuple[int, int]:
        clusters, features = self.start.shape
        return clusters, features + 1

    def first(self, rows: slice) -> ShardState:
        centres = self.start[rows]
        return (np.column_stack([centres, np.full(len(centres), np.inf)]),)

    def model(self, values: FloatArray) -> FloatArray:
        return np.ascontiguousarray(values[:, :-1])

    def penalty(self, values: FloatArray) -> float:
        """Return how far all centres moved, squared."""
        return float(values[:, -1].sum())

    def update(
        self, state: ShardState, gradient: FloatArray, pace: tuple[float, ...], rows: slice
    ) -> ShardState:
        centres = state[0][:, :-1]
        totals, counts = gradient[:, :-1], gradient[:, -1:]
        moved = np.where(counts > 0, totals / np.maximum(counts, 1.0), centres)
        return (np.column_stack([moved, ((moved - centres) ** 2).sum(axis=1)]),)

    def begin(self) -> ShardCourse:
        return ShardCourse(0, ())

    def judge(self, course: ShardCourse, totals: Sums, penalty: float) -> ShardCourse:
        loss = float(totals[0]) / self.row_count
        return ShardCourse(course.step + 1, (), loss, penalty <= self.least_move)


def first_centres(profile: Profile, clusters: int, seed: int) -> FloatArray:
    """Return centres that k-means++ chooses from a sample. Raises ArgumentError where that is too small."""
    from sklearn.cluster import kmeans_plusplus

    if len(profile.sample) < clusters:
        raise ArgumentError(
            f"clusters is {clusters}, but the SELECT has {len(profile.sample)} rows; ask for fewer"
        )
    centres: FloatArray = kmeans_plusplus(profile.sample, clusters, random_state=seed)[0]
    return centres


def cluster_sums(centres: FloatArray, rows: Rows) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the clusters' sums of rows, their counts, and the rows' squared distances, summed."""
    nearest, distances = _nearest(rows.features, centres)
    counts = np.bincount(nearest, minlength=len(centres)).astype(np.float64)
    membership = sparse.csr_array(
        (np.ones(len(rows)), nearest, np.arange(len(rows) + 1)), shape=(len(rows), len(centres))
    )
    return membership.T @ rows.features, counts, np.asarray(distances.sum())


def _nearest(features: FloatArray, centres: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return each row's nearest centre and its squared distance to it, shape (rows,) each."""
    distances = (centres**2).sum(axis=1) - 2.0 * (features @ centres.T)  # but for the row's own square
    nearest = distances.argmin(axis=1)
    return nearest, ((features - centres[nearest]) ** 2).sum(axis=1)


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

    >>> from relaqs.training import MiniBatchKMeans
    >>> sql = "SELECT 10 * (x % 2) + (x % 3) AS x FROM numbers WHERE x < 600"
    >>> model = db.train(MiniBatchKMeans(sql, clusters=2, passes_most=1)).result()
    >>> sorted(model.cluster_centers_.ravel().round(6).tolist())
    [1.0, 11.0]
    """

    sql: str
    clusters: int = 8

    target: ClassVar[None] = None

    def __post_init__(self) -> None:
        MiniBatches.__post_init__(self)
        require("sklearn")
        check_whole("clusters", self.clusters)

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
