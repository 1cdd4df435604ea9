"""Metrics of a session in the format of Prometheus: what `Session.status` says, and how soon answers came.

A scrape asks the session how things stand at that moment, so it agrees with `db.status()`. On a cluster these
are the jobs of all its clients. How soon first answers came is known of the session's own queries.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

from relaqs_engine.errors import RelaqsError
from relaqs_engine.layouts.cache import Cache

from relaqs.jobs.job import ClusterStatus
from relaqs.plugins import needed
from relaqs.queries.online_query import Asking, QueryRecord, Witness

try:
    from prometheus_client import CollectorRegistry, Counter, Histogram, start_http_server
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector
except ModuleNotFoundError as error:
    raise needed("prometheus-client", "serving metrics", "metrics") from error

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from relaqs.session import Session

PORT = 9464
_NAME_CHARACTERS = 120
_CACHE_SECONDS = 30.0  # between two looks at how large the cache is: it may have many files
_FIRST_ANSWER_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_LABELS = ("job", "kind", "name", "user")
_MOST_USERS = 200  # that queries are counted by: each is a time series for good


class MetricsServer:
    """A server that answers scrapes, in this process. A context manager; `serve_metrics` makes one.

    Attributes:
        port: where it listens.
        registry: what it tells of. Further collectors may be added to it.
    """

    def __init__(self, registry: CollectorRegistry, host: str, port: int) -> None:
        self.registry = registry
        self._server, self._thread = start_http_server(port, host, registry)
        self.port = int(self._server.server_port)

    def close(self) -> None:
        """Answer no more. The second call does nothing."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve_metrics(
    session: Session, port: int = PORT, *, host: str = "127.0.0.1", cache: Cache | None = None
) -> MetricsServer:
    """Return a server of a session's metrics, at http://host:port/metrics, which answers already.

    Args:
        session: whose jobs they are about.
        port: 0 takes any that is free.
        host: the address to listen on. There is no password: who reaches it reads the SQL of queries.
        cache: of which the size is told, the user's own by default.

    Raises:
        MissingPackageError: prometheus-client is not installed.
        OSError: the port is taken.

    >>> import urllib.request
    >>> from relaqs.metrics import serve_metrics
    >>> with relaqs.connect("data", threads=1) as db, serve_metrics(db, port=0) as server:
    ...     page = urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics").read().decode()
    >>> "relaqs_capacity_cores 1.0" in page
    True
    """
    return MetricsServer(metrics_of(session, cache=cache), host, port)


def metrics_of(session: Session, *, cache: Cache | None = None) -> CollectorRegistry:
    """Return a registry of a session's metrics, for a server that you have already.

    It has nothing of the process: add `prometheus_client`'s own collectors for that.

    Args:
        session: whose jobs they are about.
        cache: of which the size is told, the user's own by default.

    >>> with relaqs.connect("data", threads=1) as db:
    ...     relaqs.metrics.metrics_of(db).get_sample_value("relaqs_capacity_cores") == 1.0
    True
    """
    registry = CollectorRegistry()
    registry.register(_Standing(session, cache or Cache()))
    session.witnesses.append(_Answers(registry))
    return registry


class _Answers(Witness):
    """Counts queries and first answers."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._first = Histogram(
            "relaqs_first_answer_seconds",
            "From the submission of a query to its first snapshot.",
            ("kind",),
            registry=registry,
            buckets=_FIRST_ANSWER_SECONDS,
        )
        self._queries = Counter(
            "relaqs_queries", "Queries that are over.", ("kind", "outcome", "user"), registry=registry
        )
        self._users: set[str] = set()

    def answered(self, asking: Asking, seconds: float) -> None:
        self._first.labels(asking.kind).observe(seconds)

    def ended(self, record: QueryRecord) -> None:
        user = self._counted(record.asking.user)
        self._queries.labels(record.asking.kind, record.outcome, user).inc()

    def _counted(self, user: str) -> str:
        """Return a user's name, or the word for all who came when there were many already."""
        if len(self._users) < _MOST_USERS:
            self._users.add(user)
        return user if user in self._users else "(others)"


class _Standing(Collector):
    """What a session's status says at the moment of a scrape."""

    def __init__(self, session: Session, cache: Cache) -> None:
        self._session = session
        self._cache = cache
        self._cache_bytes = 0
        self._looked_at = float("-inf")

    def describe(self) -> list[Metric]:
        return []  # what there is depends on the moment

    def collect(self) -> Iterator[Metric]:
        try:
            status = self._session.status()
        except RelaqsError:
            yield GaugeMetricFamily("relaqs_up", "Whether the session is open and can be asked.", 0.0)
            return
        yield GaugeMetricFamily("relaqs_up", "Whether the session is open and can be asked.", 1.0)
        yield GaugeMetricFamily("relaqs_capacity_cores", "What there is to share.", status.capacity_cores)
        yield from _job_metrics(status)
        yield _states(status)
        yield _core_seconds(status)
        yield GaugeMetricFamily(
            "relaqs_cache_bytes", "The cache's size, looked at now and then.", self._size()
        )

    def _size(self) -> float:
        now = time.monotonic()
        if now - self._looked_at >= _CACHE_SECONDS:
            self._looked_at = now
            self._cache_bytes = sum(entry.byte_count for entry in self._cache.entries())
        return float(self._cache_bytes)


def _job_metrics(status: ClusterStatus) -> Iterator[Metric]:
    share = GaugeMetricFamily("relaqs_job_share_cores", "What the policy has planned for it.", labels=_LABELS)
    used = GaugeMetricFamily("relaqs_job_used_cores", "What it used lately.", labels=_LABELS)
    error = GaugeMetricFamily(
        "relaqs_job_error", "Relative error of a query, or loss of a training run.", labels=_LABELS
    )
    attained = GaugeMetricFamily(
        "relaqs_job_core_seconds", "What it was charged since it came.", labels=_LABELS
    )
    for job in status.jobs:
        labels = (job.id, job.kind, job.name[:_NAME_CHARACTERS], job.user)
        share.add_metric(labels, job.share_cores)
        used.add_metric(labels, job.used_cores)
        attained.add_metric(labels, job.attained_core_seconds)
        if job.quality is not None:
            error.add_metric(labels, job.quality)
    yield from (share, used, error, attained)


def _states(status: ClusterStatus) -> Metric:
    family = GaugeMetricFamily("relaqs_jobs", "How many wait, run or are paused.", labels=("state",))
    for state in ("waiting", "running", "paused"):
        family.add_metric((state,), sum(job.state == state for job in status.jobs))
    return family


def _core_seconds(status: ClusterStatus) -> Metric:
    family = CounterMetricFamily(
        "relaqs_core_seconds", "What jobs were charged, also those that are over.", labels=("kind",)
    )
    for kind, seconds in status.core_seconds.items():
        family.add_metric((kind,), seconds)
    return family
