"""Reports that libraries make for a loop, inside a pacer's block.

`report_fits(model)` is for scikit-learn's `fit` and `partial_fit`, `report_losses(criterion)` for loops of
PyTorch, and `relaqs/pacing/xgboost.py` for XGBoost.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, SupportsFloat, TypeVar

from relaqs.arguments import ArgumentError
from relaqs.pacing.paced_loop import report

Estimator = TypeVar("Estimator")
Criterion = TypeVar("Criterion")


def report_fits(estimator: Estimator, loss: Callable[[Estimator], SupportsFloat] | None = None) -> Estimator:
    """Return the estimator, which from now on reports its loss after each `partial_fit` and `fit`.

    It is for loops over `partial_fit`, and over `fit` with warm_start=True.

    Args:
        estimator: one of scikit-learn's.
        loss: returns the loss of the estimator as it is then, for example over data held back. Without it the
            loss is what the estimator keeps of its own fit: `loss_`, `inertia_`, or the last of
            `train_score_` or `loss_curve_`.

    Raises:
        ArgumentError: it has no such method; or, at the first fit, it keeps no loss.

    >>> from sklearn.cluster import MiniBatchKMeans
    >>> with db.pace() as pacer:
    ...     model = report_fits(MiniBatchKMeans(2, n_init=1, random_state=0))
    ...     model = model.partial_fit([[1.0], [2.0], [9.0], [10.0]])
    >>> len(pacer.losses)
    1
    """
    names = [name for name in ("partial_fit", "fit") if callable(getattr(estimator, name, None))]
    if not names:
        raise ArgumentError(f"{estimator!r} has no fit and no partial_fit; give a scikit-learn estimator")
    depth = [0]  # partial_fit may call fit, or the other way round: the outermost call reports
    for name in names:
        setattr(estimator, name, _Reporting(estimator, name, loss or kept_loss, depth))
    return estimator


def kept_loss(estimator: Any) -> float:
    """Return the loss that an estimator keeps of its own fit. Raises ArgumentError if it keeps none."""
    for name in ("loss_", "inertia_", "train_score_", "loss_curve_"):
        kept = getattr(estimator, name, None)
        if kept is not None:
            return float(kept[-1]) if hasattr(kept, "__len__") else float(kept)
    raise ArgumentError(
        f"{type(estimator).__name__} keeps no loss; say how to measure it: report_fits(model, loss), where "
        "loss(model) is a number"
    )


class _Reporting:
    """A method that reports when it has run. A copy of the estimator, saved or not, has the plain one."""

    def __init__(
        self, estimator: Any, name: str, measure: Callable[[Any], SupportsFloat], depth: list[int]
    ) -> None:
        self._estimator, self._name = estimator, name
        self._method = getattr(estimator, name)
        self._measure, self._depth = measure, depth
        update_wrapper(self, self._method)  # scikit-learn looks at signatures

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self._depth[0] += 1
        try:
            result = self._method(*arguments, **named)
        finally:
            self._depth[0] -= 1
        if not self._depth[0]:
            report(self._measure(self._estimator))
        return result

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self._estimator, self._name)


def report_losses(criterion: Criterion) -> Criterion:
    """Return a PyTorch loss module that reports each loss it computes for training from now on.

    Losses computed without gradients, as in an evaluation, are not reported. PyTorch itself is not imported.

    Args:
        criterion: a loss module, such as torch.nn.CrossEntropyLoss().

    Raises:
        ArgumentError: it is no module.

    >>> class Loss:  # stands for torch.nn.MSELoss()
    ...     def register_forward_hook(self, hook):
    ...         self.hook = hook
    >>> isinstance(report_losses(Loss()), Loss)
    True
    """
    register = getattr(criterion, "register_forward_hook", None)
    if register is None:
        raise ArgumentError(
            f"{criterion!r} is no PyTorch module; give one such as torch.nn.CrossEntropyLoss(), or call "
            "relaqs.report(loss) in the loop"
        )
    register(_report)
    return criterion


def _report(module: Any, inputs: Any, loss: Any) -> None:
    """A forward hook: it may not return anything, or that would replace the loss."""
    if getattr(loss, "requires_grad", True):
        report(loss.detach() if hasattr(loss, "detach") else loss)
