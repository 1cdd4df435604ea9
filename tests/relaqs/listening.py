"""A listener for tests: what it is told goes to the functions it was given."""

from __future__ import annotations

from collections.abc import Callable

from relaqs.jobs.job import StepReport
from relaqs.jobs.runner import Listener, RunState, Successor


class Listens(Listener):
    """Hands each event on. on_end gets no arguments: the runner knows its state by then."""

    def __init__(
        self,
        *,
        on_report: Callable[[StepReport], object] = lambda report: None,
        should_stop: Callable[[StepReport], bool] = lambda report: False,
        instead: Callable[[Exception], Successor | None] = lambda error: None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_report = on_report
        self._should_stop = should_stop
        self._instead = instead
        self._on_end = on_end

    def should_stop(self, report: StepReport) -> bool:
        return self._should_stop(report)

    def folded(self, report: StepReport) -> StepReport:
        self._on_report(report)
        return report

    def failed(self, error: Exception) -> Successor | None:
        return self._instead(error)

    def ended(self, state: RunState, error: BaseException | None) -> None:
        self._on_end()
