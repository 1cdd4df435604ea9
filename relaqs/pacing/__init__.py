"""Loops that ReLAQS does not run itself: they report losses, and share the cores with queries and training.

Between two reports a loop holds a core, as a task of a query does.

>>> with db.pace(target_loss=0.3) as pacer:
...     step = 1
...     while relaqs.report(1 / step):
...         step += 1
>>> pacer.losses[-1] <= 0.3
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from relaqs_bootstrap import on_first_use

if TYPE_CHECKING:
    from relaqs.pacing.function_run import Context, FunctionRun
    from relaqs.pacing.libraries import report_fits, report_losses
    from relaqs.pacing.paced_loop import Pacer, QueryPacer, report
    from relaqs.pacing.trials import SearchRun, Trial
    from relaqs.pacing.xgboost import Report

__all__ = [
    "Context",
    "FunctionRun",
    "Pacer",
    "QueryPacer",
    "Report",
    "SearchRun",
    "Trial",
    "report",
    "report_fits",
    "report_losses",
]

__getattr__, __dir__ = on_first_use(__name__)
