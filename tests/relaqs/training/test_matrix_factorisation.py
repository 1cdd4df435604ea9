"""Factors of a matrix that is nowhere negative, beside those of scikit-learn and scipy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import sklearn.decomposition
from scipy.optimize import nnls

from relaqs import ArgumentError, DataError, Session
from relaqs.training import MatrixFactorisation
from relaqs.training.algorithms.matrix_factorisation import user_factors
from tests.relaqs.training.conftest import Data

SQL = "SELECT * EXCLUDE (y) FROM digits WHERE y < 2"
EXACT = 1e-5  # of the largest factor, where sweeps stop


@pytest.mark.parametrize("seed", range(3))
def test_the_factors_of_users_are_those_of_least_squares(seed: int) -> None:
    draws = np.random.default_rng(seed)
    values, items = draws.uniform(size=(40, 12)), draws.uniform(size=(12, 4))
    items[:, 3] *= seed  # a component that no item has
    found = user_factors(values, items)
    expected = np.array([nnls(items, row)[0] for row in values])
    assert np.abs(found - expected).max() < EXACT * expected.max()


def test_it_comes_as_near_as_scikit_learn(db: Session, data: dict[str, Data]) -> None:
    """Both find a local minimum, from the same first factors of items. They need not find the same one."""
    digits = data["digits"].features[data["digits"].target < 2]
    pixels = digits.to_numpy()
    job = MatrixFactorisation(SQL, components=5, tolerance=1e-6)
    start = db.train(job, max_steps=1).result().components_
    run = db.train(job)
    model = run.result()
    theirs = sklearn.decomposition.NMF(5, init="custom", tol=1e-6, max_iter=5000)
    theirs.fit(pixels, W=user_factors(pixels, start.T), H=start)
    assert run.state == "converged"
    assert run.losses[-1] < 1.01 * theirs.reconstruction_err_**2 / pixels.size
    assert np.all(np.diff(run.losses) <= 0)
    users = model.transform(digits)
    assert ((pixels - users @ model.components_) ** 2).mean() == pytest.approx(run.losses[-1], rel=1e-3)
    assert model.components_.min() >= 0
    assert model.components_.shape == (5, 64)


def test_a_matrix_of_few_factors_is_found_again(db: Session) -> None:
    sql = "SELECT x0, 2 * x0 AS b, x9, 3 * x9 AS d FROM wine"
    run = db.train(MatrixFactorisation(sql, components=2, tolerance=0), max_steps=60)
    run.result()
    assert run.losses[-1] < 1e-4 * run.losses[0]


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT x0 - 100 AS a, x1 FROM wine", "a value is below 0"),
        ("SELECT x0 - 13 AS a, x1 + 100 AS b FROM wine", "a value is below 0"),
        ("SELECT 0 AS a, 0 AS b FROM wine", "all values are 0"),
    ],
)
def test_rows_that_cannot_be_factorised_are_refused(db: Session, sql: str, why: str) -> None:
    with pytest.raises(DataError, match=why):
        db.train(MatrixFactorisation(sql, components=2)).result()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (
            lambda: MatrixFactorisation("", components=0),
            "components is 0; it must be a whole number from 1 on",
        ),
        (lambda: MatrixFactorisation("", tolerance=-1.0), "tolerance is -1.0"),
        (lambda: MatrixFactorisation("", seed=-1), "seed is -1"),
    ],
)
def test_arguments_are_refused_by_name(make: Callable[[], object], why: str) -> None:
    with pytest.raises(ArgumentError, match=why):
        make()
