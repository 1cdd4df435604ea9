"""Mini-batch algorithms beside scikit-learn's `partial_fit` over the same rows in the same order."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.cluster import MiniBatchKMeans as TheirKMeans
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.linear_model import SGDClassifier, SGDRegressor
from sklearn.neural_network import MLPClassifier

from relaqs import ArgumentError, Session
from relaqs.training import MiniBatchKMeans, MiniBatchLinear, MiniBatchPerceptron, OnlineTopics, Sums
from relaqs.training.algorithms import topic_model
from relaqs.training.algorithms.k_means import Centres
from tests.relaqs.training.ordered import joined, ordered_steps

# A model knows its columns by their names. Here it is given arrays.
pytestmark = pytest.mark.filterwarnings("ignore:X does not have valid feature names:UserWarning")

WINE = "SELECT x0 / 30 AS x0, x1 / 5 AS x1, x6 / 5 AS x6, y FROM wine"
DIABETES = "SELECT COLUMNS('x.*') * 10, y / 100 AS y FROM diabetes"


@pytest.mark.parametrize("loss", ["log_loss", "hinge", "squared_hinge", "modified_huber", "perceptron"])
@pytest.mark.parametrize("schedule", ["constant", "invscaling", "optimal"])
def test_classes_are_told_as_by_sgd_classifier(db: Session, loss: str, schedule: str) -> None:
    """Three classes; two passes; one row a step."""
    rate = {"penalty": 1.0} if schedule == "optimal" else {}
    job = MiniBatchLinear(WINE, "y", loss=loss, schedule=schedule, start_rows=1, passes_most=2, **rate)
    model = db.train(job).result()
    theirs = SGDClassifier(
        loss=loss, alpha=job.penalty, learning_rate=schedule, eta0=0.01, power_t=0.25, shuffle=False
    )
    rows = joined(list(ordered_steps(db, job, passes=2)))
    theirs.partial_fit(rows.features, rows.target, classes=np.arange(3))
    assert_allclose(model.coef_, theirs.coef_, rtol=0, atol=1e-9 * np.abs(theirs.coef_).max())
    assert_allclose(model.intercept_, theirs.intercept_, rtol=1e-9, atol=1e-9)
    features = rows.features[:50]
    assert model.predict(features).tolist() == theirs.predict(features).tolist()


def test_two_classes_are_told_as_by_sgd_classifier(db: Session) -> None:
    job = MiniBatchLinear("SELECT x0 / 10 AS x0, x1, y > 0 AS y FROM wine", "y", start_rows=1, passes_most=1)
    model = db.train(job).result()
    theirs = SGDClassifier(
        loss="log_loss", learning_rate="invscaling", eta0=0.01, power_t=0.25, shuffle=False
    )
    rows = joined(list(ordered_steps(db, job, passes=1)))
    theirs.partial_fit(rows.features, rows.target, classes=[False, True])
    assert_allclose(model.coef_, theirs.coef_, rtol=1e-9)
    assert model.predict(rows.features).tolist() == theirs.predict(rows.features).tolist()


@pytest.mark.parametrize(
    "loss", ["squared_error", "huber", "epsilon_insensitive", "squared_epsilon_insensitive"]
)
def test_numbers_are_predicted_as_by_sgd_regressor(db: Session, loss: str) -> None:
    job = MiniBatchLinear(DIABETES, "y", loss=loss, start_rows=1, passes_most=2)
    model = db.train(job).result()
    theirs = SGDRegressor(loss=loss, shuffle=False)
    rows = joined(list(ordered_steps(db, job, passes=2)))
    theirs.partial_fit(rows.features, rows.target)
    assert_allclose(model.coef_, theirs.coef_, rtol=1e-9)
    assert_allclose(model.predict(rows.features[:9]), theirs.predict(rows.features[:9]), rtol=1e-9)


CANCER = "SELECT x0 / 10 AS x0, x1 / 20 AS x1, x4 * 10 AS x4, y FROM cancer"


@pytest.mark.parametrize("solver", ["sgd", "adam"])
@pytest.mark.parametrize("sql", [CANCER, WINE])
def test_layers_go_as_by_mlp_classifier(db: Session, solver: str, sql: str) -> None:
    """One row a step; two and three classes."""
    job = MiniBatchPerceptron(
        sql, "y", hidden=(5, 4), solver=solver, penalty=0.01, start_rows=1, passes_most=1, seed=3
    )
    model = db.train(job).result()
    theirs = MLPClassifier((5, 4), solver=solver, alpha=0.01, batch_size=1, shuffle=False, random_state=3)
    rows = joined(list(ordered_steps(db, job, passes=1)))
    theirs.partial_fit(rows.features, rows.target, classes=np.unique(rows.target))
    for one, other in zip(model.coefs_ + model.intercepts_, theirs.coefs_ + theirs.intercepts_, strict=True):
        assert_allclose(one, other, rtol=1e-9, atol=1e-9)
    assert model.predict(rows.features).tolist() == theirs.predict(rows.features).tolist()


def test_layers_go_by_the_mean_of_a_step(db: Session) -> None:
    """Steps of 8 rows, and fewer at the ends of partitions."""
    job = MiniBatchPerceptron(CANCER, "y", hidden=(5,), solver="sgd", penalty=0, start_rows=8, passes_most=1)
    model = db.train(job).result()
    theirs = MLPClassifier((5,), solver="sgd", alpha=0, shuffle=False, random_state=0)
    for rows in ordered_steps(db, job, passes=1):
        theirs.set_params(batch_size=len(rows)).partial_fit(rows.features, rows.target, classes=[0, 1])
    for one, other in zip(model.coefs_, theirs.coefs_, strict=True):
        assert_allclose(one, other, rtol=1e-9, atol=1e-9)


class Still(MiniBatchKMeans):
    """Leaves the centres where they start."""

    def update(self, state: Centres, sums: Sums, rows: int, rate: float) -> Centres:
        return state


def test_centres_move_as_by_their_mini_batches(db: Session) -> None:
    job = MiniBatchKMeans("SELECT x0, x1, x6 FROM wine", clusters=4, start_rows=16, passes_most=2)
    model = db.train(job).result()
    starts = db.train(Still(job.sql, clusters=4, start_rows=16, passes_most=1)).result().cluster_centers_
    theirs = TheirKMeans(4, init=starts, n_init=1, reassignment_ratio=0)
    for rows in ordered_steps(db, job, passes=2):
        theirs.partial_fit(rows.features)
    assert_allclose(model.cluster_centers_, theirs.cluster_centers_, rtol=1e-9)
    assert model.predict(rows.features).tolist() == theirs.predict(rows.features).tolist()


def test_topics_go_as_by_online_learning(db: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Theirs begins each document's topics at random. Both end at the same ones, if they have the time."""
    monkeypatch.setattr(topic_model, "MOST_ROUNDS", 10_000)
    monkeypatch.setattr(topic_model, "LEAST_CHANGE", 1e-10)
    sql = "SELECT x3 AS a, x4 AS b, x10 AS c, x12 AS d FROM digits WHERE y < 2"
    job = OnlineTopics(sql, topics=2, start_rows=1, passes_most=1)
    model = db.train(job).result()
    theirs = LatentDirichletAllocation(
        2,
        learning_method="online",
        total_samples=sum(len(rows.features) for rows in ordered_steps(db, job, passes=1)),
        random_state=0,
        mean_change_tol=1e-10,
        max_doc_update_iter=10_000,
    )
    for rows in ordered_steps(db, job, passes=1):
        theirs.partial_fit(rows.features)
    assert_allclose(model.components_, theirs.components_, rtol=1e-5)


def test_steps_without_gradients_grow_after_each_pass(db: Session) -> None:
    job = MiniBatchKMeans("SELECT x0, x1 FROM wine", clusters=3, start_rows=8)
    run = db.train(job, batch="elastic", max_steps=5)
    run.result()
    assert [change.batch_rows for change in run.journal.changes()] == [8, 16, 32, 64]


def test_widths_and_solvers_are_checked() -> None:
    with pytest.raises(ArgumentError, match="solver is 'lbfgs'; it must be adam or sgd"):
        MiniBatchPerceptron("SELECT 1", "y", solver="lbfgs")
    with pytest.raises(ArgumentError, match="hidden is 5; it must be a tuple"):
        MiniBatchPerceptron("SELECT 1", "y", hidden=5)
