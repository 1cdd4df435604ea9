"""The job of a query that calls costly functions: the rows that may count are read, then asked step by step.

The first step reads them, and makes units of them (`relaqs/costly/units.py`). Each further step asks half as
many units again as the one before, or no more than the target is likely to need, and gives an estimate. It
stops where the next call is beyond the budget. Once all units were asked, the answer is the query itself over
the rows with their answers. A query that lists rows is done when the rows of its answer are found.
"""

from __future__ import annotations

import math
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from relaqs_engine.duck import Cursor, DatabaseConfig
from relaqs_engine.errors import SqlError, UnsupportedError
from relaqs_engine.execution.estimate import Estimate, present_exact
from relaqs_engine.plans.costly import CostlyPlan
from relaqs_engine.plans.plan import IntervalRequest
from relaqs_engine.sql.functions import allowed_functions
from relaqs_engine.stores.mirror import default_cache_directory

from relaqs.arguments import refusal
from relaqs.costly.functions import (
    AnswerCache,
    Answered,
    AnswerFunction,
    CallWork,
    CostlyFunction,
    Pace,
    Registered,
    calls_of,
    costly_function,
)
from relaqs.costly.units import ListedRows, Units
from relaqs.executors import Executor
from relaqs.executors.duck_process import QueryWork
from relaqs.executors.threads import ThreadExecutor
from relaqs.jobs.executor import Stopwatch
from relaqs.jobs.job import Step, StepReport, Task, TaskKey, TaskResult
from relaqs.jobs.runner import RunningJobs
from relaqs.queries.jobs import Asked, Reporter, arrow_of
from relaqs.queries.online_query import OnlineQuery, Publisher
from relaqs.queries.options import QueryOptions, asking_user, watched_columns
from relaqs.queries.start import query_description
from relaqs.queries.tables import Databases

GROWTH = 1.5  # of a step over the one before
ROOM = 1.02  # of a step that should reach the target
LEAST_GROWTH = 0.02  # of what was asked, by a step that nearly reaches it


@dataclass(frozen=True, slots=True)
class Spent:
    """What a query has paid for.

    Attributes:
        calls: rows that were asked and in no cache.
        cost: of these.
    """

    calls: int = 0
    cost: float = 0.0


class CostlyJob:
    """Asks costly functions about a sample of rows that grows, and estimates the answer from it.

    Args:
        functions: those that it calls, by name.
        cursor: of the job's own, where its rows are kept; closed at the end.
        frame_config: the database that reads the rows.
        most_calls: how many rows may be asked that are in no cache.
        target: the relative error that is enough, where one is given.
    """

    def __init__(
        self,
        id: str,
        plan: CostlyPlan,
        functions: Mapping[str, Registered],
        asked: Asked,
        cursor: Cursor,
        frame_config: DatabaseConfig,
        most_calls: float = math.inf,
        target: float | None = None,
    ) -> None:
        self.id = id
        self.latest: Estimate | None = None
        self.spent = Spent()
        self._plan = plan
        self._query = plan.query
        self._functions = functions
        self._asked = asked
        self._cursor = cursor
        self._frame_config = frame_config
        self._most_calls = most_calls
        self._target = target
        self._reporter = Reporter(asked.watch, asked.judge)
        self._stop = threading.Event()
        self._units: Units | ListedRows | None = None
        self._next = 1
        self._steps = 0
        self._is_waiting = False

    @property
    def folded(self) -> int:
        return self._steps

    @property
    def batch_count(self) -> int:
        return self._steps + len(self._ahead())

    @property
    def fractions(self) -> tuple[float, ...]:
        """The share of the units that has been asked after each step, for those to come."""
        units = self._units.count if self._units else 1
        return (0.0,) * self._steps + tuple(min(1.0, each / max(units, 1)) for each in self._ahead())

    def _ahead(self) -> list[int]:
        """Return how many units have been asked after each step to come."""
        if self._units is None:
            return [1]
        found, at, size = [], self._units.asked, self._next
        while at < self._units.count:
            at = min(at + size, self._units.count)
            size = math.ceil(size * GROWTH)
            found.append(at)
        return found or [at] * (not self._units.is_complete)

    def next_step(self) -> Step | None:
        if self._is_waiting:
            return None
        self._is_waiting = True
        key = TaskKey(self.id, self._steps, 0)
        if self._units is None:
            frame = self._plan.frame
            work = QueryWork(self._frame_config, (), frame.exact_sql, frame.whole_reads)
            return Step(self._steps, (Task(key, work, self._frame_config.threads, whole_seconds=math.inf),))
        questions = self._units.next_questions(self._units_of_step())
        tasks = tuple(
            Task(TaskKey(self.id, self._steps, i), CallWork(self._functions[call.function], rows, self._stop))
            for i, (call, rows) in enumerate(zip(self._query.calls, questions, strict=True))
        )
        return Step(self._steps, tasks)

    def _units_of_step(self) -> int:
        left = self._most_calls - self.spent.calls
        most = self._next if math.isinf(left) else min(self._next, int(left // len(self._query.calls)))
        self._next = math.ceil(self._next * GROWTH)
        return int(max(min(most, self._units_to_target()), 1))

    def _units_to_target(self) -> float:
        """Return how many units more are likely enough: the error's square falls as 1 / asked − 1 / all."""
        assert self._units is not None
        if self._target is None or self.latest is None:
            return math.inf
        error = self.latest.relative_error(self._asked.watch, self._asked.judge)
        if not self._target < error < math.inf:
            return math.inf
        asked, units = self._units.asked, self._units.count
        enough = 1.0 / (1.0 / units + (1.0 / asked - 1.0 / units) * (self._target / error) ** 2)
        return math.ceil(max(ROOM * (enough - asked), LEAST_GROWTH * asked))

    def fold(self, step: Step, results: Sequence[TaskResult]) -> StepReport:
        self._is_waiting = False
        self._steps += 1
        if self._units is None:
            kind = Units if self._query.rows is None else ListedRows
            self._units = kind(
                self._plan, self._functions, self._cursor, arrow_of(results[0]), self._asked.seed
            )
            self._next = self._units.first_count
            if not self._units.is_complete:
                return self._reporter.report(step, results, None)
        else:
            answers = [self._answers_of(result) for result in results]
            self._note(answers)
            self._units.take([each.answers for each in answers])
        self.latest = replace(self._estimate(), calls=self.spent.calls, cost=self.spent.cost)
        report = self._reporter.report(step, results, self.latest)
        left = self._most_calls - self.spent.calls
        return replace(report, is_spent=not report.is_final and left < len(self._query.calls))

    def _answers_of(self, result: TaskResult) -> Answered:
        assert isinstance(result.value, Answered), result
        return result.value

    def _note(self, answers: Sequence[Answered]) -> None:
        costs = [self._functions[call.function].function.cost for call in self._query.calls]
        self.spent = Spent(
            self.spent.calls + sum(each.paid for each in answers),
            round(self.spent.cost + sum(c * each.paid for c, each in zip(costs, answers, strict=True)), 9),
        )

    def _estimate(self) -> Estimate:
        assert self._units is not None
        if self._units.is_complete:
            return present_exact(self._plan, self._units.exact())
        return self._units.estimate(self._asked.request)

    def close(self) -> None:
        """Ask no more, and give the rows back. Safe to call twice."""
        self._stop.set()
        self._cursor.close()


class CostlyFunctions:
    """The costly functions of a session, by name. Each has answers and a pace that all its queries share."""

    def __init__(self) -> None:
        self._known: dict[str, Registered] = {}
        self._answers: dict[Path | None, AnswerCache] = {}

    @property
    def types(self) -> Mapping[str, str]:
        """DuckDB's type of the answers of each."""
        return {name: each.function.type for name, each in self._known.items()}

    def register(
        self, name: str, fn: AnswerFunction, *, cache: bool | str | Path, **given: Any
    ) -> CostlyFunction:
        """Keep a function under a name; one of the same name makes room."""
        path = (
            default_cache_directory() / "answers.sqlite"
            if cache is True
            else None
            if cache is False
            else Path(cache)
        )
        function = costly_function(name, fn, cache=path, **given)
        if name in allowed_functions():
            raise refusal("name", name, f"a name that SQL does not have already, such as my_{name}")
        path = function.cache
        answers = self._answers.setdefault(path, AnswerCache(path))
        self._known[name] = Registered(function, answers, Pace(function.rate))
        return function

    def are_called(self, sql: object) -> bool:
        """Whether a statement calls one of them."""
        from relaqs_engine.rewrite.costly_calls import calls_in

        return isinstance(sql, str) and calls_in(sql, self.types)

    def meant(self, error: SqlError) -> SqlError:
        """Return an error about an unknown function with the names of those here that are like its name."""
        name = error.message.partition("the function '")[2].partition("'")[0]
        near = get_close_matches(name, self._known, n=3)
        return SqlError(error.message, error.position, (*near, *error.candidates)[:3])

    def called_by(self, plan: CostlyPlan) -> dict[str, Registered]:
        return {call.function: self._known[call.function] for call in plan.query.calls}

    def close(self) -> None:
        for answers in self._answers.values():
            answers.close()


def costly_query(
    plan: CostlyPlan,
    functions: Mapping[str, Registered],
    options: QueryOptions,
    databases: Databases,
    executor: Executor,
    running: RunningJobs,
    *,
    stopwatch: Stopwatch,
    asked_sql: str | None = None,
) -> OnlineQuery:
    """Return the query that answers a plan, not started. The arguments are those of `assembled_query`."""
    if not isinstance(executor, ThreadExecutor):
        raise UnsupportedError(
            "costly functions run in this process, and this session computes on a cluster; "
            "open one without it: relaqs.connect(..., threads=4)"
        )
    if not plan.query.calls:
        raise UnsupportedError("costly functions are asked of rows; write SELECT f(column) FROM a_table")
    asker = asking_user()
    if asker.budget == 0:
        named = " or ".join(sorted({call.function for call in plan.query.calls}))
        raise UnsupportedError(f"{asker.name} has no budget to ask {named} with; the operator can give one")
    own = databases.of(asker, plan.civil_time)
    watch = watched_columns(plan, options.watch)
    cost = sum(functions[call.function].function.cost for call in plan.query.calls)
    request = IntervalRequest(
        options.confidence, options.interval == "anytime", options.confidence_for == "table"
    )
    job = CostlyJob(
        uuid.uuid4().hex[:12],
        plan,
        functions,
        Asked(own.tasks, request, options.seed, watch=watch, judge=options.judge),
        own.state_cursor(),
        own.whole,
        min(calls_of(budget, cost, len(plan.query.calls)) for budget in (options.budget, asker.budget)),
        options.target,
    )
    publisher = Publisher(
        job, plan, options, stopwatch, executor, running=running, asked_sql=asked_sql or plan.sql
    )
    description = query_description(job.id, plan, options, asker, exact_cores=own.whole.threads)
    return OnlineQuery(publisher, job, executor, description, timeout=options.timeout)
