"""What of a failing case can be left out, and the test that is left.

Clauses, columns, tables, rows, the door and the options are left out one after another, as long as the case
fails in the same way. It is asked each time over tables that are made anew, with nothing else beside them.
"""

from __future__ import annotations

import itertools
import os
import re
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from benchmarks.grid.dimensions import DIMENSIONS, LAID_OUT, Case
from benchmarks.grid.doors import Doors
from benchmarks.grid.judge import Outcome
from benchmarks.grid.run import outcome_of
from benchmarks.grid.statements import Statement
from benchmarks.grid.worlds import COLUMNS, Rows, World

SIMPLER_TABLES = ("static", "parquet", "rows", "key")
_NUMBERS = itertools.count()


@dataclass(frozen=True, slots=True)
class Failing:
    """A case that fails. t, u: the rows of its two tables."""

    case: Case
    statement: Statement
    t: Rows
    u: Rows

    def outcome(self, folder: Path) -> Outcome:
        """Return how it ends over tables that are made anew in a folder of their own."""
        into = folder / f"anew-{os.getpid()}-{next(_NUMBERS)}"
        with closing(World(into, self.t, self.u)) as world, closing(Doors(into)) as doors:
            world.make(sorted({*self.statement.names(), "d"}))
            return outcome_of(world, doors, self.case, self.statement, 1)


def minimised(failing: Failing, wanted: Outcome, folder: Path, seconds: float = 45.0) -> Failing | None:
    """Return the smallest case that was found to fail in the same way, None where it does not fail anew."""
    until = time.monotonic() + seconds

    def fails(each: Failing) -> bool:
        if time.monotonic() > until:
            return False
        try:
            outcome = each.outcome(folder)
        except Exception:  # its tables cannot be made
            return False
        return (outcome.kind, outcome.reason) == (wanted.kind, wanted.reason)

    if not fails(failing):
        return None
    for smaller in (_few_types, _few_dimensions, _short, _few_tables, _few_rows, _few_columns, _short):
        failing = smaller(failing, fails)
    return failing


Fails = Callable[[Failing], bool]


def _first(failing: Failing, candidates: Iterator[Failing], fails: Fails) -> Failing | None:
    return next((each for each in candidates if each != failing and fails(each)), None)


def _few_types(failing: Failing, fails: Fails) -> Failing:
    types = failing.statement.types()
    smaller = replace(failing, t=replace(failing.t, types=types), u=replace(failing.u, types=types))
    return smaller if fails(smaller) else failing


def _few_dimensions(failing: Failing, fails: Fails) -> Failing:
    for name, value in (("door", "one_thread"), ("options", "usual")):
        smaller = replace(failing, case={**failing.case, name: value})
        if smaller != failing and fails(smaller):
            failing = smaller
    return failing


def _short(failing: Failing, fails: Fails) -> Failing:
    while True:
        candidates = (replace(failing, statement=each) for each in failing.statement.smaller())
        if (found := _first(failing, candidates, fails)) is None:
            return failing
        failing = found


def _few_tables(failing: Failing, fails: Fails) -> Failing:
    for letter, dimension in (("u", "second"), ("t", "table")):
        used = [name for name in failing.statement.names() if name.startswith(f"{letter}_")]
        for name in used:
            kinds = itertools.takewhile(lambda kind: f"{letter}_{kind}" != name, SIMPLER_TABLES)  # noqa: B023
            candidates = (_renamed(failing, name, f"{letter}_{kind}", dimension, kind) for kind in kinds)
            failing = _first(failing, candidates, fails) or failing
    return failing


def _renamed(failing: Failing, name: str, new: str, dimension: str, kind: str) -> Failing:
    def rename(value: Any) -> Any:
        if isinstance(value, Statement):
            return Statement(**{each.name: rename(getattr(value, each.name)) for each in fields(Statement)})
        if isinstance(value, tuple):
            return tuple(map(rename, value))
        return re.sub(rf"\b{name}\b", new, value) if isinstance(value, str) else value

    return replace(failing, statement=rename(failing.statement), case={**failing.case, dimension: kind})


def _few_rows(failing: Failing, fails: Fails) -> Failing:
    for table in ("t", "u"):
        rows: Rows = getattr(failing, table)
        kept = rows.kept if rows.kept is not None else tuple(range(rows.count))
        size = max(1, len(kept) // 2)
        while size:
            place = 0
            while place < len(kept):
                fewer = (*kept[:place], *kept[place + size :])
                changed: dict[str, Any] = {table: replace(rows, kept=fewer)}
                smaller = replace(failing, **changed)
                if fewer and fails(smaller):
                    failing, kept = smaller, fewer
                else:
                    place += size
            size //= 2
    return failing


def _few_columns(failing: Failing, fails: Fails) -> Failing:
    used = tuple(name for name in COLUMNS if re.search(rf"\b{name}\b", failing.statement.sql))
    used = used or ("id",)
    smaller = replace(failing, t=replace(failing.t, columns=used), u=replace(failing.u, columns=used))
    return smaller if fails(smaller) else failing


# The test


def test_of(failing: Failing, name: str, outcome: Outcome) -> str:
    """Return a pytest test that fails as the case does."""
    used = sorted(failing.statement.names() - {"d"})
    said = outcome.detail or outcome.reason
    tables = {each: (failing.t if each[0] == "t" else failing.u).sql for each in used}
    lines = [
        "from pathlib import Path",
        "",
        "from benchmarks.grid.minimise import check",
        "",
        "",
        f"def test_{name}(tmp_path: Path) -> None:",
        f"    # {outcome.kind}: {said.strip().splitlines()[-1][:300]}",
        "    check(",
        "        tmp_path,",
        f"        {failing.statement.sql!r},",
        "        tables={",
        *(f"            {each!r}: {sql!r}," for each, sql in tables.items()),
        "        },",
        f"        seed={failing.t.seed},",
    ]
    for key, usual in (("door", "one_thread"), ("options", "usual"), ("zone", "UTC")):
        if failing.case[key] != usual:
            lines.append(f"        {key}={failing.case[key]!r},")
    for key, value in (("params", failing.statement.params), ("is_loose", failing.statement.is_loose)):
        if value:
            lines.append(f"        {key}={value!r},")
    if failing.statement.is_ordered:
        lines.append("        is_ordered=True,")
    return "\n".join([*lines, "    )", ""])


def check(
    folder: Path,
    sql: str,
    *,
    tables: Mapping[str, str],
    seed: int = 0,
    door: str = "one_thread",
    options: str = "usual",
    zone: str = "UTC",
    params: Mapping[str, Any] | None = None,
    is_loose: bool = False,
    is_ordered: bool = False,
) -> None:
    """Assert that one statement is answered as DuckDB does.

    Args:
        folder: for the tables.
        sql: the statement.
        tables: name → the SELECT that makes its rows. `t_key` is laid out by k, and so on.
        seed: of the layouts.
        door: how it is asked, one of the dimension's values; so are `options` and `zone`.
        params: values of parameters.
        is_loose: whether an aggregate takes any row.
        is_ordered: whether the statement has an ORDER BY.
    """
    rows = {letter: Rows(1, seed, "plain", letter == "u") for letter in "tu"}
    for name, text in tables.items():
        rows[name[0]] = replace(rows[name[0]], text=text)
    kinds = {letter: [name[2:] for name in tables if name[0] == letter] for letter in "tu"}
    case = {name: values[0] for name, values in DIMENSIONS.items()}
    case |= {"table": (kinds["t"] or [LAID_OUT[0]])[0], "second": (kinds["u"] or [LAID_OUT[0]])[0]}
    case |= {"door": door, "options": options, "zone": zone}
    before = os.environ.get("TZ")
    assert zone == "UTC" or before == zone, f"run this test with TZ={zone}"
    statement = Given(sql, params=dict(params or {}), is_loose=is_loose, order="1" * is_ordered)
    outcome = Failing(case, statement, rows["t"], rows["u"]).outcome(folder)
    assert outcome.is_fine, f"{outcome.kind}: {outcome.detail}"


class Given(Statement):
    """A statement whose text is given: it is its source."""

    @property
    def sql(self) -> str:
        return self.source


def described(
    failing: Failing | None, case: Case, statement: Statement, number: int, seed: int, outcome: Outcome
) -> str:
    """Return the test of a case that was made small, or the case as it was."""
    if failing is not None:
        return test_of(failing, f"case_{seed}_{number}", outcome)
    text = f"not made small: --case {seed}:{number}\n{dict(case)}\n{statement.sql}\n{outcome.detail}"
    return textwrap.indent(text, "# ") + "\n"
