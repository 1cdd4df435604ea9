"""`Session.fit`: estimators and modules that users bring, beside loops of their libraries."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Lasso, LinearRegression, LogisticRegression, SGDClassifier, SGDRegressor
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

from relaqs import ArgumentError, DataError, Session, connect, shuffle
from relaqs.progress import StopReason
from relaqs.training import LogisticRegression as OurRegression
from relaqs.training.estimators import _asks_for_names
from tests.made_once import made_once
from tests.relaqs.training.conftest import Data

ROWS = 6_000
SEEN: list[tuple[pd.DataFrame, NDArray[Any]]] = []  # what the estimator below was given, oldest first


class Recorded(SGDClassifier):
    """A user's own class, which notes what it learns from. Threads of this process share the list."""

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Recorded:  # noqa: N803
        SEEN.append((X, y))
        return super().partial_fit(X, y, classes, sample_weight)


@pytest.fixture(scope="module")
def people() -> pd.DataFrame:
    """Numbers with gaps, texts with gaps, dates, weights and a class that follows from all of them."""
    draws = np.random.default_rng(7)
    age, income = draws.uniform(18, 80, ROWS), draws.lognormal(0, 1, ROWS)
    town = draws.choice(np.array(["a", "b", "c"]), ROWS)
    score = age / 20 + np.log(income) + (town == "b") + draws.normal(0, 0.3, ROWS)
    return pd.DataFrame(
        {
            "age": np.where(draws.random(ROWS) < 0.05, np.nan, age),
            "income": income,
            "town": pd.Series(town).where(draws.random(ROWS) > 0.05, None),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(draws.integers(0, 365, ROWS), unit="D"),
            "w": draws.uniform(0.5, 2.0, ROWS),
            "rich": np.where(score > np.median(score), "yes", "no"),
            "n": np.arange(ROWS),
        }
    )


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory, people: pd.DataFrame) -> Path:
    def make(folder: Path) -> None:
        shuffle(pa.Table.from_pandas(people), folder / "people", partitions=9)

    return made_once(tmp_path_factory, "fit", make)


@pytest.fixture(scope="module")
def people_db(warehouse: Path) -> Iterator[Session]:
    with connect(warehouse, threads=2) as session:
        yield session


NUMBERS = "SELECT income, w, rich FROM people"


@pytest.mark.parametrize("within", [make_pipeline, make_union])
def test_columns_are_known_by_name_at_any_depth(people_db: Session, within: Any) -> None:
    front = within(make_column_transformer((StandardScaler(), ["income"])))
    model = make_pipeline(front, SGDClassifier(loss="log_loss"))
    fitted = people_db.fit(model, NUMBERS, target="rich", passes=2).result(timeout=60)
    assert fitted[-1].coef_.shape == (1, 1)


def test_frames_are_given_where_transformers_give_frames() -> None:
    model = make_pipeline(StandardScaler(), SGDClassifier())
    assert not _asks_for_names(model)
    with config_context(transform_output="pandas"):
        assert _asks_for_names(model)


@pytest.mark.parametrize("strength", [0.05, 1.0, 20.0])
def test_a_counterpart_has_the_optimum_of_scikit_learn(
    db: Session, data: dict[str, Data], strength: float
) -> None:
    """To the same loss: scikit-learn's objective at our coefficients is the one at its own, to 1e-4."""
    wine = data["wine"]
    model = LogisticRegression(C=strength, tol=1e-6, solver="newton-cholesky")
    ours = db.fit(model, wine.sql, target="y").result()
    theirs = clone(model).fit(wine.features, wine.target)

    def objective(fitted: LogisticRegression) -> float:
        chances = fitted.predict_proba(wine.features)[np.arange(len(wine.target)), wine.target]
        return float(-np.log(chances).mean() + (fitted.coef_**2).sum() / (2 * strength * len(wine.target)))

    assert objective(ours) <= objective(theirs) + 1e-4
    assert (type(ours), ours.get_params()) == (LogisticRegression, model.get_params())
    assert ours.n_iter_[0] > 0
    assert not hasattr(model, "coef_")


@pytest.mark.parametrize(
    "model", [LinearRegression(), Lasso(0.1), LinearSVC(C=0.1), KMeans(3, random_state=1)]
)
def test_counterparts_keep_the_users_parameters(db: Session, data: dict[str, Data], model: Any) -> None:
    is_class = isinstance(model, LinearSVC)
    table = data["cancer" if is_class else "diabetes"]
    sql, target = (table.sql, "y") if not isinstance(model, KMeans) else ("SELECT x0, x1 FROM diabetes", None)
    fitted = db.fit(model, sql, target=target).result()
    assert (type(fitted), fitted.get_params()) == (type(model), model.get_params())
    features = table.features if target else table.features[["x0", "x1"]]
    theirs = clone(model).fit(features, table.target)
    if isinstance(model, KMeans):  # from other starts than scikit-learn's
        assert fitted.cluster_centers_.shape == (3, 2)
        assert -fitted.score(features) <= 1.1 * theirs.inertia_
    elif isinstance(model, LinearSVC):
        assert squared_hinge(fitted, table) <= squared_hinge(theirs, table) * (1 + 1e-3)
    else:
        assert fitted.coef_ == pytest.approx(theirs.coef_, rel=1e-3, abs=1e-3 * np.abs(theirs.coef_).max())


def squared_hinge(model: LinearSVC, table: Data) -> float:
    """Return the objective that scikit-learn minimises; it counts the intercept as a weight."""
    signs = 2.0 * table.target - 1.0
    margins = np.maximum(0.0, 1.0 - signs * model.decision_function(table.features))
    weights = np.append(model.coef_, model.intercept_)
    return float((weights**2).sum() / 2 + model.C * (margins**2).sum())


@pytest.mark.parametrize(
    ("model", "named"),
    [
        (LogisticRegression(class_weight="balanced"), "class_weight is 'balanced'"),
        (LogisticRegression(solver="liblinear"), "solver is 'liblinear'"),
        (LogisticRegression(l1_ratio=0.5, solver="saga"), "l1_ratio is 0.5"),
        (LinearRegression(fit_intercept=False), "fit_intercept is False"),
        (LinearRegression(positive=True), "positive is True"),
        (LinearSVC(loss="hinge"), "loss is 'hinge'"),
        (KMeans(3, n_init=10), "n_init is 10"),
        (KMeans(2, init=np.zeros((2, 2))), "init is array"),
    ],
)
def test_what_is_not_honoured_is_refused_by_its_name(people_db: Session, model: Any, named: str) -> None:
    target = None if isinstance(model, KMeans) else "rich"
    with pytest.raises(ArgumentError, match=named):
        people_db.fit(model, "SELECT income, w FROM people" if target is None else NUMBERS, target=target)


def test_partial_fit_is_that_of_a_loop_over_the_same_batches(people_db: Session) -> None:
    SEEN.clear()
    model = Recorded(loss="log_loss", random_state=3, max_iter=4, tol=None)
    sql = "SELECT n, income, w, rich FROM people"
    run = people_db.fit(model, sql, target="rich", batch=512)
    fitted = run.result()
    alone = SGDClassifier(loss="log_loss", random_state=3, max_iter=4, tol=None)
    losses: list[list[float]] = []
    for place, (frame, wanted) in enumerate(SEEN):
        if place:
            chances = alone.predict_proba(frame)[np.arange(len(frame)), (wanted == "yes").astype(int)]
            losses.append([len(frame), -np.log(np.clip(chances, np.finfo(float).eps, 1)).mean()])
        alone.partial_fit(frame, wanted, classes=["no", "yes"])
    assert fitted.coef_.tolist() == alone.coef_.tolist()
    assert (type(fitted), fitted.classes_.tolist()) == (Recorded, ["no", "yes"])
    each_pass = len(SEEN) // 4
    rows, means = np.array(losses[each_pass - 1 : 2 * each_pass - 1]).T
    assert run.losses[1] == pytest.approx(np.average(means, weights=rows), rel=1e-12)
    for index in range(4):
        numbers = pd.concat([frame for frame, _ in SEEN[index * each_pass : (index + 1) * each_pass]]).n
        assert sorted(numbers) == list(range(ROWS))
    assert (run.stop_reason, len(run.losses)) == (StopReason.PASSES, 4)


def test_the_number_of_cores_changes_no_bit(warehouse: Path) -> None:
    found = []
    for threads in (1, 3):
        with connect(warehouse, threads=threads) as session:
            run = session.fit(SGDClassifier(loss="log_loss"), NUMBERS, target="rich", passes=3)
            found.append((run.result().coef_.tolist(), run.losses))
    assert found[0] == found[1]


def test_a_pipeline_takes_texts_dates_gaps_and_weights(people_db: Session, people: pd.DataFrame) -> None:
    def months(frame: pd.DataFrame) -> NDArray[Any]:
        return frame.iloc[:, 0].dt.month.to_numpy()[:, None] / 12

    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["town"]),
        (make_pipeline(SimpleImputer(), StandardScaler()), ["age"]),
        (FunctionTransformer(np.log), ["income"]),
        (FunctionTransformer(months), ["day"]),
    )
    model = make_pipeline(columns, SGDClassifier(loss="log_loss", random_state=0))
    sql = "SELECT town, age, income, day, w, rich FROM people"
    run = people_db.fit(model, sql, target="rich", weight="w", passes=8)
    fitted = run.result()
    features = people[["town", "age", "income", "day"]]
    theirs = clone(model).fit(features, people.rich, sgdclassifier__sample_weight=people.w)
    assert fitted.score(features, people.rich) > theirs.score(features, people.rich) - 0.03
    assert fitted.n_features_in_ == 4
    assert run.losses[-1] < run.losses[0]
    unweighted = people_db.fit(model, sql.replace(" w,", ""), target="rich", passes=8).result()
    assert unweighted[-1].coef_.tolist() != fitted[-1].coef_.tolist()


@pytest.mark.parametrize("model", [GaussianNB(), SGDClassifier(loss="log_loss", random_state=0)])
def test_batches_without_a_weight_teach_nothing(people_db: Session, people: pd.DataFrame, model: Any) -> None:
    """Rows of weight 0 are as rows that are not there: for what is learned, and for its loss."""
    sql = "SELECT income, CASE WHEN n % 1500 < 3 THEN 1 + n % 2 ELSE 0 END AS w, rich FROM people"
    run = people_db.fit(model, sql, target="rich", weight="w", passes=1, batch=64)
    fitted = run.result()
    few = people[people.n % 1500 < 3]
    if isinstance(model, GaussianNB):
        theirs = GaussianNB().fit(few[["income"]], few.rich, sample_weight=1 + few.n % 2)
        assert fitted.theta_ == pytest.approx(theirs.theta_)
    else:
        assert 1 < fitted.t_ <= 64 * len(few) + 1
    assert np.isfinite(run.losses).all()


def test_a_loss_by_weights_is_that_of_the_rows_repeated(people_db: Session, people: pd.DataFrame) -> None:
    """Over a whole pass of a model that stands still, though weights lie unevenly in its batches."""
    sql = "SELECT income, CASE WHEN n % 700 < 3 THEN 100 ELSE n % 2 END AS w, rich FROM people"
    model = Still()
    run = people_db.fit(model, sql, target="rich", weight="w", passes=1, batch=64)
    run.result()
    weights = np.where(people.n % 700 < 3, 100, people.n % 2)
    assert run.losses == pytest.approx([np.average(people.rich != "yes", weights=weights)])


def test_an_estimator_without_passes_of_its_own_sees_each_row_once(
    people_db: Session, people: pd.DataFrame
) -> None:
    run = people_db.fit(GaussianNB(), NUMBERS, target="rich")
    fitted, theirs = run.result(), GaussianNB().fit(people[["income", "w"]], people.rich)
    assert (run.stop_reason, fitted.class_count_.sum()) == (StopReason.PASSES, ROWS)
    assert fitted.theta_ == pytest.approx(theirs.theta_)
    assert fitted.var_ == pytest.approx(theirs.var_)


def test_numbers_and_clusters_have_the_losses_of_scikit_learn(people_db: Session) -> None:
    run = people_db.fit(SGDRegressor(), "SELECT w, 2 * w + 1 AS y FROM people", target="y", passes=30)
    assert run.result().predict(pd.DataFrame({"w": [1.0]})) == pytest.approx([3.0], abs=0.05)
    assert run.losses[-1] < 1e-3
    clusters = people_db.fit(MiniBatchKMeans(2), "SELECT w FROM people", held_out=0.3, passes=3)
    fitted = clusters.result()
    held = people_db.fit(MiniBatchKMeans(2), "SELECT w FROM people", loss=_inertia, held_out=0.3, passes=3)
    held.result()
    assert fitted.cluster_centers_.shape == (2, 1)
    assert clusters.losses == pytest.approx(held.losses)


def _inertia(model: MiniBatchKMeans, frame: pd.DataFrame, target: None) -> float:
    return float((model.transform(frame).min(axis=1) ** 2).mean())


def test_a_loss_may_be_a_scorer_by_name(people_db: Session) -> None:
    model = SGDClassifier(loss="log_loss")
    asked: dict[str, Any] = {"target": "rich", "held_out": 0.3, "passes": 2}
    own = people_db.fit(model, NUMBERS, **asked)
    named = people_db.fit(model, NUMBERS, loss="neg_log_loss", **asked)
    own.result(), named.result()
    assert named.losses == pytest.approx(own.losses)
    with pytest.raises(ArgumentError, match="loss is 'no_such'"):
        people_db.fit(model, NUMBERS, loss="no_such", **asked)


def test_a_run_says_why_it_is_over(people_db: Session, db: Session) -> None:
    model = SGDClassifier(loss="log_loss")
    sql = "SELECT income, w, income > 1 AS rich FROM people"
    ask = partial(people_db.fit, model, sql, target="rich")
    reached, accurate, out_of_time = ask(until=0.5), ask(until={"accuracy": 0.8}), ask(timeout=0.05)
    stopped = ask(until=1e-9)
    next(iter(stopped))
    stopped.stop()
    for run in (reached, accurate, stopped):
        run.wait()
    out_of_time.wait()
    assert (reached.stop_reason, accurate.stop_reason) == (StopReason.TARGET, StopReason.REQUIRED_ACCURACY)
    assert (out_of_time.stop_reason, stopped.stop_reason) == (StopReason.TIME, StopReason.STOPPED)
    converged = db.fit(LinearRegression(), "SELECT * FROM diabetes", target="y")
    missed = db.fit(LinearRegression(), "SELECT * FROM diabetes", target="y", until=1.0)
    converged.result(), missed.result()
    assert (converged.stop_reason, missed.stop_reason) == (StopReason.CONVERGED, StopReason.MISSED)
    failed = people_db.fit(SGDClassifier(), "SELECT age, rich FROM people", target="rich")
    with pytest.raises(ValueError, match="NaN"):
        failed.result()
    assert failed.stop_reason is StopReason.FAILED


def test_what_cannot_be_fitted_is_refused(people_db: Session) -> None:
    def refused(match: str, *arguments: Any, error: type[Exception] = ArgumentError, **named: Any) -> None:
        with pytest.raises(error, match=match):
            people_db.fit(*arguments, **named).result()

    sql = "SELECT income, rich FROM people"
    refused("RandomForestClassifier, which has no partial_fit", RandomForestClassifier(), sql, target="rich")
    refused("ends in PCA|no partial_fit", make_pipeline(StandardScaler(), LinearSVC()), sql, target="rich")
    refused("target is None", SGDClassifier(), sql)
    refused("target is None", LogisticRegression(), sql)
    refused("sql is None", SGDClassifier())
    refused("weight 'no' is no column", SGDClassifier(), sql, target="rich", weight="no", error=DataError)
    refused("takes no sample_weight", Weightless(), sql, target="rich", weight="income")
    refused("model is the class SGDClassifier", SGDClassifier, sql, target="rich")
    for column, match in (
        ("nullif(n % 2, 0)", "'w' is NULL, NaN or infinite"),
        ("0 * n", "mean of the weight 'w' is 0"),
        ("town", "weight 'w' is no number"),
    ):
        weighed = f"SELECT income, {column} AS w, rich FROM people"
        refused(match, SGDClassifier(), weighed, target="rich", weight="w", error=DataError)
    rare = "SELECT income, n = 5 AS w, rich FROM people"
    loss = {"loss": lambda model, frame, target: 0.0}
    refused(
        "0 in all rows of the first",
        SGDClassifier(),
        rare,
        target="rich",
        weight="w",
        error=DataError,
        **loss,
    )
    refused("until is 'soon'", SGDClassifier(), sql, target="rich", until="soon")
    refused("optimizer is 1", SGDClassifier(), sql, target="rich", optimizer=1)
    refused("sql is 'SELECT", OurRegression(sql, target="rich"), sql)


class Still(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Learns nothing, and says yes."""

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Still:  # noqa: N803
        self.classes_ = ["no", "yes"]
        return self

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        return np.full(len(X), "yes")


class Weightless(SGDClassifier):
    """Takes no weights."""

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Weightless:  # type: ignore[override]  # noqa: N803
        return super().partial_fit(X, y, classes)


def test_train_is_fit_by_other_names(db: Session, data: dict[str, Data]) -> None:
    job = OurRegression(data["cancer"].sql, target="y")
    trained, fitted = db.train(job, max_steps=3), db.fit(job, passes=3)
    assert trained.result().coef_.tolist() == fitted.result().coef_.tolist()
    with pytest.raises(ArgumentError, match="train takes no 'passes'"):
        db.train(job, passes=3)  # type: ignore[call-arg]


def loss_of_parity(outputs: Any, wanted: Any) -> Any:
    """A loss of the user's own: nothing that is known by its name."""
    import torch

    return torch.nn.functional.binary_cross_entropy_with_logits(outputs, wanted % 2)


def test_a_module_is_trained_as_in_a_loop_of_its_own(people_db: Session) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(5)
    net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    alone = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    alone.load_state_dict(net.state_dict())
    slower = partial(torch.optim.lr_scheduler.StepLR, step_size=3, gamma=0.5)
    sql = "SELECT income, w, n AS y FROM people"
    asked: dict[str, Any] = {"target": "y", "batch": 512, "passes": 2}
    optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
    run = people_db.fit(net, sql, loss=loss_of_parity, optimizer=optimiser, schedule=slower, **asked)
    trained = run.result()
    assert not torch.equal(trained[0].weight, net[0].weight)
    assert torch.equal(alone[0].weight, net[0].weight)

    SEEN.clear()  # the order of the rows is the same for all models
    people_db.fit(
        Recorded(max_iter=2, tol=None), "SELECT income, w, n, n % 2 AS y FROM people", **asked
    ).result()
    own = torch.optim.Adam(alone.parameters(), lr=0.01)
    schedule, losses = slower(own), []
    for frame, _ in SEEN:
        own.zero_grad()
        features = torch.from_numpy(frame[["income", "w"]].to_numpy(np.float32, copy=True))
        loss = loss_of_parity(alone(features).reshape(-1), torch.tensor(frame.n.to_numpy(np.float32)))
        loss.backward()
        own.step()
        schedule.step()
        losses.append([len(frame), float(loss.detach())])
    for name, parameter in alone.state_dict().items():
        assert torch.allclose(parameter, trained.state_dict()[name], rtol=1e-6, atol=1e-7), name
    rows, means = np.array(losses[: len(losses) // 2]).T
    assert run.losses[0] == pytest.approx(np.average(means, weights=rows), rel=1e-6)


def test_a_module_of_classes_has_an_accuracy(people_db: Session) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(5)
    asked: dict[str, Any] = {"target": "rich", "until": {"accuracy": 0.75}, "passes": 30}
    adam = partial(torch.optim.Adam, lr=0.05)
    sql = "SELECT ln(income) AS income, rich FROM people"
    for outputs, loss in ((2, torch.nn.CrossEntropyLoss()), (1, torch.nn.BCEWithLogitsLoss())):
        run = people_db.fit(torch.nn.Linear(1, outputs), sql, loss=loss, optimizer=adam, **asked)
        assert run.result().classes_.tolist() == ["no", "yes"]
        assert (run.stop_reason, run.accuracy >= 0.75) == (StopReason.REQUIRED_ACCURACY, True)


def test_what_a_module_needs_is_said(people_db: Session) -> None:
    torch = pytest.importorskip("torch")
    net, loss, adam = torch.nn.Linear(2, 1), torch.nn.MSELoss(), torch.optim.Adam

    def refused(match: str, error: type[Exception] = ArgumentError, **named: Any) -> None:
        asked: dict[str, Any] = {"target": "y", "loss": loss, "optimizer": adam, **named}
        model = asked.pop("model", net)
        sql = asked.pop("sql", "SELECT income, w, n AS y FROM people")
        with pytest.raises(error, match=match):
            people_db.fit(model, sql, **asked).result()

    refused("loss is None", loss=None)
    refused("optimizer is None", optimizer=None)
    refused("none of the module's", optimizer=adam(torch.nn.Linear(2, 1).parameters()))
    refused("no parameters", model=torch.nn.ReLU())
    refused("target is None", target=None)
    refused("cannot take the 1 features", DataError, sql="SELECT w, n AS y FROM people")
    refused("one number", DataError, loss=torch.nn.MSELoss(reduction="none"))
    refused("'age' is NULL", DataError, sql="SELECT age, w, n AS y FROM people")
    refused("is not a number", DataError, target="rich", sql="SELECT income, w, rich FROM people")
