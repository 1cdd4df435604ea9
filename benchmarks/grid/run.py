"""One case from its values to its outcome."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa

from benchmarks.grid.dimensions import DIMENSIONS, IN_MEMORY, Case
from benchmarks.grid.doors import Answer, Doors, text_difference
from benchmarks.grid.judge import Outcome, Truth, difference, has_several_answers, judged, stable, truth_of
from benchmarks.grid.statements import Statement, Writer
from benchmarks.grid.worlds import World
from relaqs import RelaqsError

LONG_SECONDS = 10.0
"""What plain DuckDB may take. A statement that takes longer is not asked."""
TABLES = (
    "d",
    *(f"t_{kind}" for kind in DIMENSIONS["table"]),
    *(f"u_{kind}" for kind in DIMENSIONS["second"]),
)


class Runner:
    """Runs cases in this process. folder: of its own. seed: of the worlds and statements."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._seed = folder, seed
        self._worlds: dict[str, World] = {}
        self.doors = Doors(folder)

    def close(self) -> None:
        self.doors.close()
        for world in self._worlds.values():
            world.close()

    def world(self, odd: str) -> World:
        """Return the world of such odd values, with all its tables."""
        if odd not in self._worlds:
            world = World.of_seed(self._folder, self._seed, odd)
            world.make(TABLES)
            self._worlds[odd] = world
        return self._worlds[odd]

    def statement(self, case: Case, number: int) -> Statement:
        return Writer(case, self._seed, number, self.doors.second_of(case)).written()

    def small(self, case: Case, number: int, outcome: Outcome) -> str:
        """Return a failing case made small, as a test."""
        from benchmarks.grid.minimise import Failing, described, minimised

        world, statement = self.world(case["odd"]), self.statement(case, number)
        failing = Failing({**case, "second": self.doors.second_of(case)}, statement, world.t, world.u)
        found = minimised(failing, outcome, self._folder)
        return described(found, case, statement, number, self._seed, outcome)

    def run(self, case: Case, number: int) -> Outcome:
        world = self.world(case["odd"])
        return outcome_of(world, self.doors, case, self.statement(case, number), number)


def outcome_of(world: World, doors: Doors, case: Case, statement: Statement, number: int) -> Outcome:
    """Return how a statement ends that is asked by the case's door."""
    truth = _truth_in_time(world, statement)
    if truth is None:
        return Outcome("too long")
    try:
        answer = doors.ask(world, case, statement, number)
    except RelaqsError as error:
        if type(error).__name__ == "InternalError":
            return Outcome("raw", stable(f"InternalError: {error}"), str(error))
        if truth.table is None:
            return Outcome("both refuse", stable(truth.error))
        return Outcome("refused", stable(f"{type(error).__name__}: {error}"), str(error))
    except Exception as error:
        import traceback

        last = traceback.extract_tb(error.__traceback__)[-1]
        reason = stable(f"{type(error).__name__}: {error}") + f" ({Path(last.filename).name}:{last.name})"
        return Outcome("raw", reason, "".join(traceback.format_exception(error))[-3000:])
    if truth.table is None:
        if is_met_by_no_row(truth, answer):
            return Outcome("ambiguous")
        return Outcome("wrong", f"DuckDB refuses: {stable(truth.error)}", truth.error)
    return _judged(world, statement, answer, truth, in_files=_goes_in_a_file(case))


def _goes_in_a_file(case: Case) -> bool:
    """Whether data in memory are written to a file, for a cluster's workers."""
    return case["door"] == "cluster" and not {case["table"], case["second"]}.isdisjoint(IN_MEMORY)


def is_met_by_no_row(truth: Truth, answer: Answer) -> bool:
    """Whether DuckDB refuses a value, and the answer has no row that would have it.

    Whether DuckDB itself refuses a cast over no rows depends on its plan.
    """
    rows = answer.table.num_rows if answer.table is not None else len(answer.texts[1]) if answer.texts else 0
    return truth.error.startswith("ConversionException") and not rows


def decides_by_chance(statement: Statement, truth: Truth) -> bool:
    """Whether a set operation keeps rows or not by what may be any value, or by the last digits of a sum."""
    assert truth.table is not None
    has_floats = any(map(pa.types.is_floating, truth.table.schema.types))
    return statement.compares_rows and (statement.is_loose or has_floats)


def _judged(world: World, statement: Statement, answer: Answer, truth: Truth, *, in_files: bool) -> Outcome:
    assert truth.table is not None
    if answer.texts is not None:
        loose = truth.is_ambiguous or statement.is_loose
        wrong = text_difference(answer.texts, truth.table, is_loose=loose)
    else:
        assert answer.table is not None
        wrong = difference(answer.table, truth, is_loose=statement.is_loose, in_files=in_files)
    path = answer.snapshots[-1].mode if answer.snapshots else ""
    if wrong and not (
        wrong.startswith(("values", "rows"))
        and (decides_by_chance(statement, truth) or has_several_answers(world, statement, truth))
    ):
        return Outcome("wrong", stable(wrong.split(":")[0]), wrong, path)
    kind = "ambiguous" if wrong or truth.is_ambiguous or statement.is_loose else "equal"
    if not answer.snapshots:
        return Outcome(kind, path=path)
    held = judged(answer.snapshots)
    if held.flaws:
        return Outcome("wrong", f"on the way: {held.flaws[0].split(':')[0]}", held.flaws[0], path)
    return Outcome(kind, path=path, certified=held.certified, held=held.held)


def _truth_in_time(world: World, statement: Statement) -> Truth | None:
    """Return DuckDB's answer, None where it takes too long."""
    late = threading.Event()

    def stop() -> None:
        late.set()
        for oracle in world.oracles:
            oracle.interrupt()

    timer = threading.Timer(LONG_SECONDS, stop)
    timer.start()
    try:
        truth = truth_of(world, statement)
    finally:
        timer.cancel()
    return None if late.is_set() else truth
