"""Reports from PyTorch's own loops: `criterion = report_losses(criterion)` inside a pacer's block."""

from __future__ import annotations

from typing import Any, TypeVar

from relaqs.arguments import ArgumentError
from relaqs.pacing.pacer import report

Criterion = TypeVar("Criterion")


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
