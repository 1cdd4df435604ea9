"""Each algorithm, over partitions, against its library's fit of the same rows on one machine."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import sklearn.cluster
import sklearn.decomposition
import sklearn.linear_model
import sklearn.neural_network
import sklearn.svm
import xgboost

from relaqs import ArgumentError, DataError, Session
from relaqs.training import (
    BoostedClassifier,
    BoostedRegressor,
    KMeans,
    LinearRegression,
    LinearSVM,
    LogisticRegression,
    Perceptron,
    PolynomialSVM,
    Rows,
    TopicModel,
    TrainingJob,
)
from relaqs.training.rows import profile_of
from tests.relaqs.training.conftest import Data

SAME = 1e-9  # two orders of adding the same doubles
COEFFICIENTS = 1e-3  # of the largest one, where both stop at a small gradient
PREDICTIONS = 1e-4  # of single-precision trees


def relative(one: Any, other: Any) -> float:
    """Return the largest difference as a share of the largest value."""
    return float(np.abs(np.asarray(one) - other).max() / np.abs(other).max())


def test_k_means_ends_where_lloyd_ends(db: Session, data: dict[str, Data]) -> None:
    pixels = data["digits"].features
    job = KMeans("SELECT * EXCLUDE (y) FROM digits", clusters=10, tolerance=0)
    start = db.train(job, max_steps=1).result().cluster_centers_
    run = db.train(job)
    model = run.result()
    oracle = sklearn.cluster.KMeans(10, init=start, n_init=1, tol=0, max_iter=1000).fit(pixels.to_numpy())
    assert run.state == "converged"
    assert relative(model.cluster_centers_, oracle.cluster_centers_) < SAME
    assert run.losses[-1] * len(pixels) == pytest.approx(oracle.inertia_)
    assert (model.predict(pixels) == oracle.labels_).all()
    assert np.all(np.diff(run.losses) <= 0)


def test_linear_regression_is_least_squares(db: Session, data: dict[str, Data]) -> None:
    rows = data["diabetes"]
    run = db.train(LinearRegression(rows.sql, target="y", tolerance=1e-8))
    model = run.result()
    oracle = sklearn.linear_model.LinearRegression().fit(rows.features, rows.target)
    assert relative(model.coef_, oracle.coef_) < COEFFICIENTS
    assert model.intercept_ == pytest.approx(oracle.intercept_)
    assert relative(model.predict(rows.features), oracle.predict(rows.features)) < PREDICTIONS
    assert run.losses[-1] == pytest.approx(np.mean((model.predict(rows.features) - rows.target) ** 2))


def test_the_unit_of_the_target_does_not_matter(db: Session) -> None:
    sql = "SELECT x2, x8, y * {} AS y FROM diabetes"
    small, large = (db.train(LinearRegression(sql.format(unit), target="y")).result() for unit in (1e-6, 1e6))
    assert relative(large.coef_ / 1e12, small.coef_) < 1e-6


@pytest.mark.parametrize(("name", "strength"), [("cancer", 0.01), ("wine", 1.0), ("wine", 0.01)])
def test_logistic_regression(db: Session, data: dict[str, Data], name: str, strength: float) -> None:
    rows = data[name]
    run = db.train(LogisticRegression(rows.sql, target="y", strength=strength, tolerance=1e-6))
    model = run.result()
    oracle = sklearn.linear_model.LogisticRegression(
        C=strength, tol=1e-10, max_iter=1000, solver="newton-cholesky"
    ).fit(rows.features, rows.target)
    assert relative(model.coef_, oracle.coef_) < COEFFICIENTS
    assert model.coef_.shape == oracle.coef_.shape
    assert np.allclose(
        model.predict_proba(rows.features), oracle.predict_proba(rows.features), atol=COEFFICIENTS
    )


@pytest.mark.parametrize("name", ["cancer", "wine"])
def test_linear_svm(db: Session, data: dict[str, Data], name: str) -> None:
    rows = data[name]
    run = db.train(LinearSVM(rows.sql, target="y", tolerance=1e-6))
    model = run.result()
    oracle = sklearn.svm.LinearSVC(dual=False, tol=1e-10, max_iter=100_000).fit(rows.features, rows.target)
    assert relative(model.coef_, oracle.coef_) < COEFFICIENTS
    assert relative(model.intercept_, oracle.intercept_) < COEFFICIENTS
    assert (model.predict(rows.features) == oracle.predict(rows.features)).all()


def test_polynomial_svm_is_a_linear_one_behind_its_map(db: Session, data: dict[str, Data]) -> None:
    rows = data["wine"]
    mean, deviation = rows.features.mean(), rows.features.std()
    features = (rows.features - mean) / deviation
    scaled = ", ".join(f"({name} - {mean[name]}) / {deviation[name]} AS {name}" for name in features)
    job = PolynomialSVM(f"SELECT {scaled}, y FROM wine", target="y", landmarks=40, tolerance=1e-6)
    model = db.train(job).result()
    map_, machine = (step for _, step in model.steps)
    mapped = map_.transform(features)
    oracle = sklearn.svm.LinearSVC(dual=False, tol=1e-10, max_iter=100_000).fit(mapped, rows.target)
    assert relative(machine.coef_, oracle.coef_) < COEFFICIENTS
    assert (model.predict(features) == oracle.predict(mapped)).all()


def test_polynomial_svm_with_all_rows_as_landmarks_has_the_kernel_itself(
    db: Session, data: dict[str, Data]
) -> None:
    rows = data["wine"].features[["x0", "x6"]]
    job = PolynomialSVM("SELECT x0, x6, y FROM wine", target="y", degree=2, gamma=0.1, landmarks=1000)
    map_ = db.train(job, max_steps=1).result().steps[0][1]
    mapped = map_.transform(rows)
    kernel = (0.1 * rows.to_numpy() @ rows.to_numpy().T + 1.0) ** 2
    assert relative(mapped @ mapped.T, kernel) < 1e-6


@pytest.mark.parametrize(
    ("name", "depth", "least_hessian", "parameters"),
    [
        ("cancer", 4, 5.0, {"objective": "binary:logistic"}),
        ("wine", 2, 1.0, {"objective": "multi:softprob", "num_class": 3, "base_score": 0.5}),
    ],
)
def test_boosted_classifier_grows_the_trees_of_xgboost(
    db: Session,
    data: dict[str, Data],
    name: str,
    depth: int,
    least_hessian: float,
    parameters: dict[str, Any],
) -> None:
    """Least hessians are such that no two splits gain the same, which rounding would decide."""
    rows = data[name]
    job = BoostedClassifier(rows.sql, "y", trees=4, depth=depth, least_hessian=least_hessian, bins=1024)
    run = db.train(job)
    model = run.result()
    matrix = xgboost.DMatrix(rows.features, rows.target)
    oracle = xgboost.train(
        {
            "base_score": float(rows.target.mean()),
            **parameters,
            "max_depth": depth,
            "min_child_weight": least_hessian,
            "max_bin": 1024,
        },
        matrix,
        4,
    )
    assert np.allclose(model.predict(matrix), oracle.predict(matrix), atol=PREDICTIONS)
    assert len(model.get_dump()) == len(oracle.get_dump())
    metric = {"binary:logistic": "logloss", "multi:softprob": "mlogloss"}[parameters["objective"]]
    model.set_param("eval_metric", metric)
    assert float(model.eval(matrix).split(":")[1]) == pytest.approx(run.losses[-1], rel=PREDICTIONS)


def test_boosted_regressor_grows_the_trees_of_xgboost(db: Session, data: dict[str, Data]) -> None:
    rows = data["diabetes"]
    run = db.train(BoostedRegressor(rows.sql, target="y", trees=15, depth=4, bins=1024))
    model = run.result()
    matrix = xgboost.DMatrix(rows.features, rows.target)
    parameters = {"max_depth": 4, "base_score": float(rows.target.mean()), "max_bin": 1024}
    oracle = xgboost.train(parameters, matrix, 15)
    assert relative(model.predict(matrix), oracle.predict(matrix)) < PREDICTIONS
    assert run.losses[-1] == pytest.approx(np.mean((oracle.predict(matrix) - rows.target) ** 2))
    assert len(run.losses) == 15 * 4 + 1
    assert model.num_boosted_rounds() == 15


def test_boosted_trees_with_few_bins_lose_little(db: Session, data: dict[str, Data]) -> None:
    rows = data["diabetes"]
    coarse, fine = (
        db.train(BoostedRegressor(rows.sql, target="y", trees=10, depth=3, bins=bins)) for bins in (8, 1024)
    )
    coarse.result(), fine.result()
    assert fine.losses[-1] < coarse.losses[-1] < 1.3 * fine.losses[-1]


def test_a_tree_that_grows_counts_as_far_as_it_has_come(db: Session, data: dict[str, Data]) -> None:
    rows = data["diabetes"]
    job = BoostedRegressor(rows.sql, target="y", trees=2, depth=3)
    for steps in (2, 3, 4, 5):
        run = db.train(job, max_steps=steps)
        model = run.result()
        predicted = model.predict(xgboost.DMatrix(rows.features))
        assert model.num_boosted_rounds() == (steps + 1) // 3
        assert run.losses[-1] == pytest.approx(np.mean((predicted - rows.target) ** 2)), steps


def test_a_task_that_runs_again_late_spoils_nothing(data: dict[str, Data]) -> None:
    """A worker thought dead may still run a task of an earlier pass, and find what later ones kept."""
    rows = Rows(data["diabetes"].features.to_numpy(), data["diabetes"].target)
    job = BoostedRegressor("", "y", trees=3, depth=1)
    profile = profile_of(rows, tuple(data["diabetes"].features), len(rows), seed=0)
    training = job.begin(profile)
    models = []
    for _ in range(3):
        models.append(training.model)
        training.fold(job.partial(training.model, rows))
    late, fresh = (job.partial(models[1], each) for each in (rows, Rows(rows.features, rows.target)))
    assert all(np.array_equal(a, b) for a, b in zip(late, fresh, strict=True))
    assert job.partial(training.model, rows)[0] < late[0]


def test_perceptron_descends_like_scikit_learn(db: Session, data: dict[str, Data]) -> None:
    features = data["wine"].features[["x0", "x6", "x9"]]
    sql = "SELECT x0, x6, x9, y FROM wine"
    run = db.train(Perceptron(sql, target="y", hidden=(8, 4), penalty=1.0, seed=3))
    model = run.result()
    oracle = sklearn.neural_network.MLPClassifier(
        (8, 4), alpha=1.0, solver="lbfgs", random_state=3, max_iter=10_000
    ).fit(features, data["wine"].target)
    assert run.losses[-1] == pytest.approx(oracle.loss_, rel=1e-3)
    assert np.allclose(model.predict_proba(features), oracle.predict_proba(features), atol=0.02)


def test_perceptron_of_two_classes_starts_where_scikit_learn_starts(
    db: Session, data: dict[str, Data]
) -> None:
    rows = data["cancer"]
    run = db.train(Perceptron(rows.sql, target="y", hidden=(5,), seed=1), max_steps=1)
    model = run.result()
    oracle = sklearn.neural_network.MLPClassifier((5,), solver="lbfgs", random_state=1, max_iter=1, max_fun=1)
    with pytest.warns(sklearn.exceptions.ConvergenceWarning):
        oracle.fit(rows.features, rows.target)
    for ours, theirs in zip(model.coefs_, oracle.coefs_, strict=True):
        assert ours.shape == theirs.shape
    assert (model.predict(rows.features) == (model.predict_proba(rows.features)[:, 1] > 0.5)).all()


def test_topic_model_maximises_the_bound_of_scikit_learn(db: Session, data: dict[str, Data]) -> None:
    counts = data["digits"].features[data["digits"].target < 2]
    job = TopicModel("SELECT * EXCLUDE (y) FROM digits WHERE y < 2", topics=3)
    run = db.train(job, max_steps=9)
    model = run.result()
    assert np.log(model.perplexity(counts)) == pytest.approx(run.losses[-1])
    oracle = sklearn.decomposition.LatentDirichletAllocation(3, random_state=0, max_iter=8).fit(counts)
    assert run.losses[-1] == pytest.approx(np.log(oracle.bound_), rel=0.01)
    assert np.all(np.diff(run.losses) <= 0)


def test_a_pass_of_the_topic_model_is_one_of_scikit_learn(db: Session, data: dict[str, Data]) -> None:
    """Its online update with a weight of one and all documents at once is the batch update."""
    counts = data["digits"].features[data["digits"].target < 2]
    job = TopicModel("SELECT * EXCLUDE (y) FROM digits WHERE y < 2", topics=4)
    before, after = (db.train(job, max_steps=steps).result() for steps in (1, 2))
    before.set_params(learning_decay=0.0, total_samples=len(counts), batch_size=len(counts))
    before.random_state_, before.n_batch_iter_ = np.random.RandomState(0), 1
    before.partial_fit(counts)
    assert relative(after.components_, before.components_) < 0.01  # theirs starts documents at random


def test_classes_may_be_text(db: Session, data: dict[str, Data]) -> None:
    sql = "SELECT x0, x6, x9, y FROM wine_text"
    features = data["wine"].features[["x0", "x6", "x9"]]
    for job in (LogisticRegression(sql, "y"), LinearSVM(sql, "y"), Perceptron(sql, "y", hidden=(5,))):
        model = db.train(job, max_steps=30).result()
        assert model.classes_.tolist() == ["barbera", "barolo", "grignolino"]
        assert set(model.predict(features)) <= {"barbera", "barolo", "grignolino"}
    booster = db.train(BoostedClassifier(sql, "y", trees=1, depth=2)).result()
    assert booster.attr("classes") == '["barbera", "barolo", "grignolino"]'


def test_estimators_know_their_features(db: Session, data: dict[str, Data]) -> None:
    model = db.train(KMeans("SELECT x0 AS alcohol, x6 AS flavour FROM wine", clusters=2)).result()
    assert model.feature_names_in_.tolist() == ["alcohol", "flavour"]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(data["wine"].features[["x0", "x6"]])
    booster = db.train(BoostedRegressor("SELECT x2 AS bmi, y FROM diabetes", "y", trees=1)).result()
    assert booster.feature_names == ["bmi"]


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (KMeans("SELECT x0 FROM wine", clusters=1000), "clusters is 1000"),
        (LogisticRegression("SELECT x0, 1 AS y FROM wine", "y"), "one class only"),
        (LinearRegression("SELECT x0, y FROM wine_text", "y"), "is not a number"),
        (
            BoostedClassifier("SELECT a.x0, b.x1 * a.x2 AS y FROM cancer a, wine b", "y"),
            "1000 distinct values",
        ),
        (TopicModel("SELECT x0 - 100 AS a, 1000 AS b FROM wine"), "less than 0 times"),
        (TopicModel("SELECT 0 AS a FROM wine"), "no words"),
        (KMeans("SELECT x0 FROM wine WHERE x0 < 0"), "no rows"),
        (BoostedRegressor("SELECT x0 < 13 AS 'x0 < 13', x1 AS y FROM wine", "y"), "cannot name a feature"),
        (BoostedRegressor("SELECT x0, x0, x1 AS y FROM wine", "y"), "cannot name a feature 'x0'"),
    ],
)
def test_data_that_an_algorithm_cannot_learn_from(db: Session, job: TrainingJob, said: str) -> None:
    with pytest.raises((DataError, ArgumentError), match=said):
        db.train(job).result()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: KMeans("", clusters=0), "clusters is 0; it must be a whole number from 1 on"),
        (lambda: KMeans("", tolerance=-1), "tolerance is -1; it must be a finite number, 0 or above"),
        (
            lambda: LogisticRegression("", "y", strength=0),
            "strength is 0; it must be a finite number above 0",
        ),
        (lambda: Perceptron("", "y", hidden=5), "hidden is 5; it must be a tuple"),  # type: ignore[arg-type]
        (lambda: BoostedRegressor("", "y", trees=1.5), "trees is 1.5"),  # type: ignore[arg-type]
        (lambda: TopicModel("", topic_prior=0.0), "topic_prior is 0.0"),
    ],
)
def test_hyperparameters_are_checked_at_once(make: Any, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        make()


@pytest.mark.parametrize(
    ("missing", "make"),
    [("sklearn", lambda: KMeans("")), ("xgboost", lambda: BoostedRegressor("", "y"))],
)
def test_a_missing_library_is_named_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, missing: str, make: Any
) -> None:
    monkeypatch.setattr("relaqs.plugins.find_spec", lambda name: None if name == missing else find_spec(name))
    with pytest.raises(ImportError, match=r"is not installed; .*pip install 'relaqs\[train\]'"):
        make()
