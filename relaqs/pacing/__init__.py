"""Loops that ReLAQS does not run itself: they report losses, and share the cores with queries and training.

Example: a PyTorch or scikit-learn loop calls `report(loss)` once a pass. Between two reports it holds a core,
as a task of a query does.
"""

from relaqs.pacing.pacer import Pacer, report
from relaqs.pacing.scikit import report_fits
from relaqs.pacing.torch import report_losses

__all__ = ["Pacer", "report", "report_fits", "report_losses"]
