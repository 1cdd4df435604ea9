"""What boosted trees reduce: squared errors of numbers, or the log loss of classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from relaqs_bootstrap.arrays import FloatArray
from scipy.special import expit, log_expit, log_softmax, logit

from relaqs.training.profile import Profile, class_codes, known_classes, numeric_target

LEAST_HESSIAN = 1e-16  # of a row


class BoostingLoss(Protocol):
    """A loss of scores, one a row and output. start: the scores before any tree, shape (outputs,)."""

    @property
    def start(self) -> FloatArray: ...

    @property
    def xgboost_parameters(self) -> dict[str, Any]:
        """The parameters by which XGBoost has the same loss and start."""
        ...

    def total(self, scores: FloatArray, target: NDArray[Any]) -> float:
        """Return the rows' loss, summed. scores: shape (rows, outputs)."""
        ...

    def slopes(self, scores: FloatArray, target: NDArray[Any]) -> FloatArray:
        """Return gradient and hessian for each score, shape (rows, outputs, 2)."""
        ...


@dataclass(frozen=True, slots=True)
class SquaredLoss:
    """The squared error of one score. As in XGBoost its gradient is taken of half of it."""

    mean: float

    @classmethod
    def of(cls, profile: Profile, target: str) -> SquaredLoss:
        mean, _ = numeric_target(profile, target)
        return cls(mean)

    @property
    def start(self) -> FloatArray:
        return np.array([self.mean])

    @property
    def xgboost_parameters(self) -> dict[str, Any]:
        return {"objective": "reg:squarederror", "base_score": self.mean}

    def total(self, scores: FloatArray, target: NDArray[Any]) -> float:
        return float(((scores[:, 0] - target) ** 2).sum())

    def slopes(self, scores: FloatArray, target: NDArray[Any]) -> FloatArray:
        error = scores - target[:, None]
        return np.stack([error, np.ones_like(error)], axis=2)


@dataclass(frozen=True, slots=True)
class LogLoss:
    """The log loss of classes: two have one score, more have one each. share: of the second of two."""

    classes: NDArray[Any]
    share: float

    @classmethod
    def of(cls, profile: Profile, target: str) -> LogLoss:
        classes = known_classes(profile, target)
        assert profile.class_rows is not None
        return cls(classes, float(profile.class_rows[1] / profile.row_count))

    @property
    def start(self) -> FloatArray:
        return np.array([logit(self.share)]) if len(self.classes) == 2 else np.zeros(len(self.classes))

    @property
    def xgboost_parameters(self) -> dict[str, Any]:
        if len(self.classes) == 2:
            return {"objective": "binary:logistic", "base_score": self.share}
        return {"objective": "multi:softprob", "base_score": 0.0, "num_class": len(self.classes)}

    def total(self, scores: FloatArray, target: NDArray[Any]) -> float:
        codes = class_codes(target, self.classes)
        if scores.shape[1] == 1:
            return -float(log_expit(np.where(codes == 1, 1.0, -1.0) * scores[:, 0]).sum())
        return -float(log_softmax(scores, axis=1)[np.arange(len(codes)), codes].sum())

    def slopes(self, scores: FloatArray, target: NDArray[Any]) -> FloatArray:
        codes = class_codes(target, self.classes)
        if scores.shape[1] == 1:
            shares, is_class, factor = expit(scores), codes[:, None] == 1, 1.0
        else:
            shares, is_class = (
                np.exp(log_softmax(scores, axis=1)),
                codes[:, None] == np.arange(len(self.classes)),
            )
            factor = 2.0  # XGBoost's bound of the whole hessian by its diagonal
        hessians = np.maximum(factor * shares * (1 - shares), LEAST_HESSIAN)
        return np.stack([shares - is_class, hessians], axis=2)
