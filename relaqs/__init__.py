"""ReLAQS: SQL answers that start in a blink, carry honest error bars, and sharpen until they are exact.

Nine packages are public: this one, `relaqs.ai`, `relaqs.policies`, `relaqs.training`, `relaqs.pacing`,
`relaqs.dbapi`, `relaqs.metrics`, `relaqs.dask` and `relaqs_bootstrap`. The names in their `__all__` stay.
Everything else may move. Names are loaded when they are first used, so that `import relaqs` and the command
line start at once.

>>> import duckdb, relaqs
>>> trips = duckdb.sql("SELECT i % 3 AS zone, i / 100 AS delay FROM range(10000) AS t(i)")
>>> layout = relaqs.shuffle(trips, "warehouse/trips")
>>> with relaqs.connect("warehouse") as db:
...     answer = db.online_sql("SELECT zone, avg(delay) FROM trips GROUP BY zone").result()
>>> answer.is_exact, len(answer)
(True, 3)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from relaqs_bootstrap import on_first_use
from relaqs_engine.errors import (
    BrokenDatabaseError,
    ClusterError,
    DataError,
    ExpressionError,
    InternalError,
    LayoutError,
    MemoryLimitError,
    RelaqsError,
    SqlError,
    StoreError,
    TooManyGroupsError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from relaqs_engine.advisor.advise import Advice
    from relaqs_engine.execution.estimate import ApproximateColumn
    from relaqs_engine.layouts import Layout, Table, VerifyReport, add_static, compact, verify
    from relaqs_engine.layouts.cache import Cache
    from relaqs_engine.layouts.cached_files import CacheEntry
    from relaqs_engine.plans.plan import OnlinePlan

    from relaqs.arguments import ArgumentError
    from relaqs.costly.functions import CostlyCallError
    from relaqs.executors.spreading import append, shuffle
    from relaqs.jobs.job import ClusterStatus, JobStatus
    from relaqs.notebook import load_ipython_extension
    from relaqs.opening import connect, online_sql
    from relaqs.pacing import Pacer, QueryPacer, report, report_fits, report_losses
    from relaqs.plugins import MissingPackageError, PluginError
    from relaqs.policies import PolicyError
    from relaqs.prediction.ahead import Expected
    from relaqs.queries.online_query import OnlineQuery, QueryTimeoutError
    from relaqs.queries.options import QueryOptions
    from relaqs.queries.snapshot import Snapshot
    from relaqs.queries.tables import LayoutProgress
    from relaqs.session import Session
    from relaqs.training import TrainingRun

__all__ = [
    "Advice",
    "ApproximateColumn",
    "ArgumentError",
    "BrokenDatabaseError",
    "Cache",
    "CacheEntry",
    "ClusterError",
    "ClusterStatus",
    "CostlyCallError",
    "DataError",
    "Expected",
    "ExpressionError",
    "InternalError",
    "JobStatus",
    "Layout",
    "LayoutError",
    "LayoutProgress",
    "MemoryLimitError",
    "MissingPackageError",
    "OnlinePlan",
    "OnlineQuery",
    "Pacer",
    "PluginError",
    "PolicyError",
    "QueryOptions",
    "QueryPacer",
    "QueryTimeoutError",
    "RelaqsError",
    "Session",
    "Snapshot",
    "SqlError",
    "StoreError",
    "Table",
    "TooManyGroupsError",
    "TrainingRun",
    "UnsupportedError",
    "VerifyReport",
    "add_static",
    "append",
    "compact",
    "connect",
    "load_ipython_extension",
    "online_sql",
    "report",
    "report_fits",
    "report_losses",
    "shuffle",
    "verify",
]

_load, __dir__ = on_first_use(__name__)


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("relaqs")
    return _load(name)
