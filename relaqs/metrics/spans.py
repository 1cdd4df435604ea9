"""Spans of OpenTelemetry: a query, how long it was planned, and each of its mini-batches.

    relaqs.query
        relaqs.plan
        relaqs.mini-batch     from the end of the one before to the end of its fold
        relaqs.mini-batch

The query's span belongs to whatever span was current where it was asked. `relaqs.connect` adds them to each
session of a process that has imported `opentelemetry.trace`. Else nothing is done, and nothing is imported.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from relaqs.jobs.job import StepReport
from relaqs.queries.online_query import Asking, QueryRecord, Witness

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TracerProvider


@dataclass(slots=True)
class _Open:
    span: Span
    batch_began_ns: int


class Spans(Witness):
    """Draws the spans of a session's queries.

    Values of parameters are left out. SQL is as it was written.

    Args:
        provider: makes the tracer, the process's own by default.
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        from opentelemetry import trace

        self._trace = trace
        self._tracer = trace.get_tracer("relaqs", tracer_provider=provider)
        self._open: dict[str, _Open] = {}

    def began(self, asking: Asking) -> None:
        """Begin the query's span, and draw that of its planning."""
        now_ns, submitted_ns = time.time_ns(), int(asking.submitted_at * 1e9)
        attributes = {
            "db.system.name": "relaqs",
            "db.query.text": asking.asked_sql,
            "relaqs.kind": asking.kind,
            "enduser.id": asking.who,
        }
        span = self._tracer.start_span("relaqs.query", start_time=submitted_ns, attributes=attributes)
        self._draw("relaqs.plan", span, submitted_ns, now_ns, {})
        self._open[asking.id] = _Open(span, now_ns)

    def folded(self, id: str, report: StepReport) -> None:
        """Draw the span of a mini-batch."""
        if (opened := self._open.get(id)) is None:
            return
        now_ns = time.time_ns()
        attributes = {"relaqs.step": report.step, "relaqs.core_seconds": report.core_seconds}
        self._draw("relaqs.mini-batch", opened.span, opened.batch_began_ns, now_ns, attributes)
        opened.batch_began_ns = now_ns

    def ended(self, record: QueryRecord) -> None:
        """End the query's span."""
        if (opened := self._open.pop(record.asking.id, None)) is None:
            return
        opened.span.set_attribute("relaqs.outcome", record.outcome)
        opened.span.set_attribute("relaqs.core_seconds", record.core_seconds)
        if record.error is not None:
            opened.span.set_attribute("relaqs.error", record.error)
        if record.first_answer_seconds is not None:
            opened.span.set_attribute("relaqs.first_answer_seconds", record.first_answer_seconds)
        if record.failure is not None:
            kind = record.failure.partition(":")[0]
            opened.span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, kind))
        opened.span.end()

    def _draw(
        self, name: str, parent: Span, began_ns: int, ended_ns: int, attributes: dict[str, int | float]
    ) -> None:
        context = self._trace.set_span_in_context(parent)
        self._tracer.start_span(name, context, start_time=began_ns, attributes=attributes).end(ended_ns)
