"""ReLAQS: SQL answers that start in a blink, carry honest error bars, and sharpen until they are exact.

Users import this package alone. Names are loaded when they are first used, so that `import relaqs` and the
command line start at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from relaqs_engine.errors import (
    ClusterError,
    DataError,
    LayoutError,
    MemoryLimitError,
    RelaqsError,
    SqlError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from relaqs_engine.advisor.advise import Advice
    from relaqs_engine.layouts import Layout, add_static, verify
    from relaqs_engine.plans.plan import OnlinePlan

    from relaqs.laying_out import shuffle
    from relaqs.opening import connect, online_sql
    from relaqs.options import ArgumentError
    from relaqs.pacing.pacer import Pacer, report
    from relaqs.queries.online_query import OnlineQuery
    from relaqs.queries.publisher import QueryTimeoutError
    from relaqs.session import Session
    from relaqs.snapshot import Snapshot
    from relaqs.training.run import TrainingRun

__all__ = [
    "Advice",
    "ArgumentError",
    "ClusterError",
    "DataError",
    "Layout",
    "LayoutError",
    "MemoryLimitError",
    "OnlinePlan",
    "OnlineQuery",
    "Pacer",
    "QueryTimeoutError",
    "RelaqsError",
    "Session",
    "Snapshot",
    "SqlError",
    "TrainingRun",
    "UnsupportedError",
    "add_static",
    "connect",
    "online_sql",
    "report",
    "shuffle",
    "verify",
]

_HOMES = {
    "Advice": "relaqs_engine.advisor.advise",
    "ArgumentError": "relaqs.options",
    "Layout": "relaqs_engine.layouts",
    "OnlinePlan": "relaqs_engine.plans.plan",
    "OnlineQuery": "relaqs.queries.online_query",
    "Pacer": "relaqs.pacing.pacer",
    "QueryTimeoutError": "relaqs.queries.publisher",
    "Session": "relaqs.session",
    "Snapshot": "relaqs.snapshot",
    "TrainingRun": "relaqs.training.run",
    "add_static": "relaqs_engine.layouts",
    "connect": "relaqs.opening",
    "online_sql": "relaqs.opening",
    "report": "relaqs.pacing.pacer",
    "shuffle": "relaqs.laying_out",
    "verify": "relaqs_engine.layouts",
}


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("relaqs")
    if name not in _HOMES:
        raise AttributeError(f"module 'relaqs' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
