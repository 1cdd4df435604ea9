"""What whoever runs ReLAQS for others looks at: Prometheus metrics, a log of queries, spans of OpenTelemetry.

Each is given a session, or hears of its queries as one of its `witnesses`. None takes part in a query.

>>> from relaqs.metrics import QueryLog
>>> with relaqs.connect("data", threads=1) as db, QueryLog("queries.jsonl") as log:
...     db.witnesses.append(log)
...     answer = db.online_sql("SELECT sum(x) AS total FROM numbers").result()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from relaqs_bootstrap import on_first_use

from relaqs.queries.online_query import Asking, QueryRecord, Witness
from relaqs.queries.options import asked_by

if TYPE_CHECKING:
    from relaqs.metrics.prometheus import MetricsServer, metrics_of, serve_metrics
    from relaqs.metrics.query_log import QueryLog
    from relaqs.metrics.spans import Spans

__all__ = [
    "Asking",
    "MetricsServer",
    "QueryLog",
    "QueryRecord",
    "Spans",
    "Witness",
    "asked_by",
    "metrics_of",
    "serve_metrics",
]


__getattr__, __dir__ = on_first_use(__name__)
