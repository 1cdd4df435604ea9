"""How a server stands, in numbers: how late its event loop is, who waits at the door, who was turned away.

One connection that holds the loop makes all others wait. So a small task sleeps, again and again, and how
much later than it asked for it wakes up is how long somebody held the loop.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate
from operator import add
from typing import TYPE_CHECKING, TypeAlias, cast

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector

LATE_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_PAUSE_SECONDS = 0.05


class Health:
    """Counts of one server. Its loop writes them, and any thread may read them.

    Attributes:
        late: how often the loop was late by no more than each of LATE_SECONDS, and by more than the last.
        late_sum_seconds: by which it was late, all times together.
        late_most_seconds: the most since the start.
        logins: how many ended how: "let in", "wrong password", "too many", "refused".
        connections: tells how many there are, that are "entering" and that have "entered".
    """

    def __init__(self) -> None:
        self.late = [0] * (len(LATE_SECONDS) + 1)
        self.late_sum_seconds = 0.0
        self.late_most_seconds = 0.0
        self.logins = dict.fromkeys(("let in", "wrong password", "too many", "refused"), 0)
        self.connections: Callable[[], dict[str, int]] = dict

    def was_late(self, seconds: float) -> None:
        """Count a time that the loop was late."""
        self.late[bisect_left(LATE_SECONDS, seconds)] += 1
        self.late_sum_seconds += seconds
        self.late_most_seconds = max(self.late_most_seconds, seconds)

    async def watch(self) -> None:
        """Measure how late the running loop is, until cancelled."""
        while True:
            asked = time.monotonic() + _PAUSE_SECONDS
            await asyncio.sleep(_PAUSE_SECONDS)
            self.was_late(max(0.0, time.monotonic() - asked))

    def collect(self) -> Iterator[Metric]:
        """Yield how the server stands now, as metrics."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        limits = [*map(str, LATE_SECONDS), "+Inf"]
        yield HistogramMetricFamily(
            "relaqs_loop_late_seconds",
            "How late the server's event loop was, asked twenty times a second.",
            buckets=list(zip(limits, map(float, accumulate(self.late)), strict=True)),
            sum_value=self.late_sum_seconds,
        )
        yield GaugeMetricFamily(
            "relaqs_loop_late_most_seconds", "The most since the server's start.", self.late_most_seconds
        )
        logins = CounterMetricFamily("relaqs_logins", "How many ended how.", labels=("outcome",))
        for outcome, count in self.logins.items():
            logins.add_metric((outcome,), count)
        connections = GaugeMetricFamily(
            "relaqs_connections", "Of the server, before and after the login.", labels=("state",)
        )
        for state, count in self.connections().items():
            connections.add_metric((state,), count)
        yield from (logins, connections)


def add_metrics(health: Health, registry: CollectorRegistry) -> None:
    """Let scrapes of a registry tell how a server stands at that moment."""
    registry.register(cast("Collector", health))


def summed_metrics(health: Health, others: Callable[[], list[str]]) -> CollectorRegistry:
    """Return a registry of a server of several processes: what they all say, each number summed.

    Args:
        health: of the process that asks.
        others: returns the metrics of each other process, as text.
    """
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.metrics_core import Metric
    from prometheus_client.parser import text_string_to_metric_families
    from prometheus_client.registry import Collector

    own = CollectorRegistry()
    add_metrics(health, own)

    class Summed(Collector):
        def describe(self) -> list[Metric]:
            return []  # what there is depends on the moment

        def collect(self) -> Iterator[Metric]:
            merged: dict[str, tuple[Metric, dict[_Sample, float]]] = {}
            for text in (generate_latest(own).decode(), *others()):
                for family in text_string_to_metric_families(text):
                    _, values = merged.setdefault(family.name, (family, {}))
                    for sample in family.samples:
                        of = sample.name, tuple(sample.labels.items())
                        merge = next((by for end, by in _NOT_SUMMED if sample.name.endswith(end)), add)
                        values[of] = merge(values[of], sample.value) if of in values else sample.value
            for family, values in merged.values():
                summed = Metric(family.name, family.documentation, family.type)
                for (name, labels), value in values.items():
                    summed.add_sample(name, dict(labels), value)
                yield summed

    registry = CollectorRegistry()
    registry.register(Summed())
    return registry


_Sample: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]  # its name and labels
_NOT_SUMMED: tuple[tuple[str, Callable[[float, float], float]], ...] = (
    ("_most_seconds", max),
    ("_cache_bytes", max),  # they share the cache
    ("_created", min),
    ("_up", min),
)
