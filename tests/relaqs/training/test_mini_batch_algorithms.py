"""Mini-batch algorithms beside scikit-learn's `partial_fit` over the same rows in the same order."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import SGDClassifier, SGDRegressor

from relaqs import Session
from relaqs.training import MiniBatchLinear
from tests.relaqs.training.ordered import joined, ordered_steps

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
