"""Factorisation of a matrix that is nowhere negative: users are solved in each pass, items follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from relaqs_bootstrap.arrays import FloatArray
from relaqs_engine.errors import DataError

from relaqs.arguments import check_not_negative, check_whole
from relaqs.plugins import require
from relaqs.training.algorithms import fitted
from relaqs.training.protocol import ShardCourse, ShardState, WholeParameters
from relaqs.training.rows import Profile, Rows, Sums

if TYPE_CHECKING:
    import sklearn.decomposition

MOST_SWEEPS = 200  # over the factors of users, and
LEAST_CHANGE = 1e-7  # of them, as a share of the largest one, after which they have settled
ITEM_SWEEPS = 3  # over the factors of items in a pass


@dataclass(frozen=True, slots=True)
class MatrixFactorisation:
    """Factors of a matrix of which no value is negative. A row is a user, a column an item.

    It finds factors of users W and of items H, none of them negative, such that the matrix is about W Hᵀ. The
    loss is the mean squared error of a value. A pass solves the factors of all users for those of the items,
    and then betters those of the items. So nothing is kept of a user. The factors of items can lie in shards
    on the workers of a cluster: `db.train(job, parameters="sharded")`. Source of both steps: Gillis and
    Glineur, Accelerated Multiplicative Updates and Hierarchical ALS Algorithms, 2012, section 3.

    Args:
        sql: the SELECT of the users. Every column is an item.
        components: how many factors a user and an item have.
        tolerance: training has converged when a pass betters the loss by a smaller share than this.
        seed: of the first factors.

    >>> from relaqs.training import MatrixFactorisation
    >>> sql = "SELECT x % 3 AS tea, 2 * (x % 3) AS cups, x % 5 AS nails FROM numbers WHERE x < 600"
    >>> run = db.train(MatrixFactorisation(sql, components=2))
    >>> model = run.result()
    >>> model.components_.shape, run.losses[-1] < 0.001
    ((2, 3), True)
    """

    sql: str
    components: int = 10
    tolerance: float = 1e-4
    seed: int = 0

    target: ClassVar[None] = None
    piece_rows: ClassVar[int] = 1024  # a user's factors are solved by many sweeps

    def __post_init__(self) -> None:
        require("sklearn")
        check_whole("components", self.components)
        check_whole("seed", self.seed, least=0)
        check_not_negative("tolerance", self.tolerance)

    def begin(self, profile: Profile) -> WholeParameters:
        return WholeParameters(self.descent(profile))

    def descent(self, profile: Profile) -> ItemDescent:
        """Return how the factors of items begin, change and are judged, in shards or not."""
        if (profile.mean < 0).any():
            raise _negative()
        items = len(profile.names)
        size = float(np.sqrt(profile.mean.mean() / self.components))
        if size == 0:
            raise DataError("all values are 0; there is nothing to factorise")
        return ItemDescent((items, self.components), self.seed, size, profile.row_count, self.tolerance)

    def partial(self, model: FloatArray, rows: Rows) -> Sums:
        """Return VᵀW with WᵀW below it, shape (items + components, components), and the squared errors.

        V are the rows, and W the factors of their users. model: those of items, shape (items, components).
        """
        if (rows.features < 0).any():
            raise _negative()
        users = user_factors(rows.features, model)
        errors = rows.features - users @ model.T
        return np.vstack([rows.features.T @ users, users.T @ users]), np.asarray((errors**2).sum())

    def estimator(self, profile: Profile, model: FloatArray) -> sklearn.decomposition.NMF:
        """Return the fitted estimator, without what it does not know: `n_iter_`."""
        from sklearn.decomposition import NMF

        estimator = NMF(self.components, init="random", random_state=self.seed)
        components = np.ascontiguousarray(model.T)
        return fitted(estimator, profile.names, components_=components, n_components_=self.components)


@dataclass(frozen=True, slots=True)
class ItemDescent:
    """Factors of items that follow from those of users. The parameters have a row for each item.

    Attributes:
        shape: how many items and components there are.
        seed: of the first factors.
        size: of the first factors, as a standard deviation.
        row_count: of the users.
        tolerance: the relative change of the loss under which the factors have converged.
    """

    shape: tuple[int, int]
    seed: int
    size: float
    row_count: int
    tolerance: float

    @property
    def shared_rows(self) -> int:
        """WᵀW goes to all owners."""
        return self.shape[1]

    def first(self, rows: slice) -> ShardState:
        drawn = np.random.default_rng(self.seed).standard_normal(self.shape)
        return (self.size * np.abs(drawn[rows]),)

    def model(self, values: FloatArray) -> FloatArray:
        return values

    def penalty(self, values: FloatArray) -> float:
        return 0.0

    def update(
        self, state: ShardState, gradient: FloatArray, pace: tuple[float, ...], rows: slice
    ) -> ShardState:
        """Sweep over the components. It goes element by element, so that no cut changes a bit."""
        factors = np.ascontiguousarray(state[0].T)
        wanted, shared = gradient[: len(state[0])].T, gradient[len(state[0]) :]
        for _ in range(ITEM_SWEEPS):
            for at in np.flatnonzero(np.diag(shared) > 0):
                step = wanted[at] - sum(
                    factors[other] * shared[other, at] for other in range(len(factors)) if other != at
                )
                factors[at] = np.maximum(step / shared[at, at], 0.0)
        return (np.ascontiguousarray(factors.T),)

    def begin(self) -> ShardCourse:
        return ShardCourse(0, ())

    def judge(self, course: ShardCourse, totals: Sums, penalty: float) -> ShardCourse:
        loss = float(totals[0]) / (self.row_count * self.shape[0])
        is_final = course.loss - loss <= self.tolerance * loss
        return ShardCourse(course.step + 1, (), loss, is_final)


def user_factors(values: FloatArray, items: FloatArray) -> FloatArray:
    """Return the factors of users, none negative, by which the squared error is least.

    Args:
        values: shape (users, items).
        items: their factors, shape (items, components).
    """
    shared, wanted = items.T @ items, values @ items
    found = np.zeros_like(wanted)
    used = np.flatnonzero(np.diag(shared) > 0)  # a component that no item has stays at 0
    for _ in range(MOST_SWEEPS):
        change = 0.0
        for at in used:
            before = found[:, at].copy()
            step = (wanted[:, at] - found @ shared[:, at]) / shared[at, at]
            found[:, at] = np.maximum(before + step, 0.0)
            change = max(change, float(np.abs(found[:, at] - before).max(initial=0.0)))
        if change <= LEAST_CHANGE * found.max(initial=0.0):
            break
    return found


def _negative() -> DataError:
    return DataError("a value is below 0; a matrix that is factorised has none")
