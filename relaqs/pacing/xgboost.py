"""Reports from XGBoost's own loop: `xgboost.train(…, callbacks=[Report()])` inside a pacer's block."""

from __future__ import annotations

from typing import Any

from xgboost.callback import TrainingCallback

from relaqs.pacing.paced_loop import report


class Report(TrainingCallback):
    """After each round reports the newest metric of the last evaluation set, and ends training when told to.

    The metric must be one that falls, such as `logloss` or `rmse`.

    >>> import numpy, xgboost
    >>> data = xgboost.DMatrix(numpy.arange(100.0)[:, None], numpy.arange(100.0))
    >>> with db.pace() as pacer:
    ...     settings = {"evals": [(data, "all")], "verbose_eval": False, "callbacks": [Report()]}
    ...     model = xgboost.train({}, data, 3, **settings)
    >>> len(pacer.losses)
    3
    """

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Return whether to stop, as XGBoost asks."""
        if not evals_log:
            raise ValueError("there is no loss to report; give xgboost.train evals=[(data, name)]")
        metrics = list(evals_log.values())[-1]
        newest = list(metrics.values())[-1][-1]
        return not report(newest[0] if isinstance(newest, tuple) else newest)
