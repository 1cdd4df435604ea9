"""Ask the queries of other engines' own test files beside plain DuckDB, from a checkout of theirs.

    python -m benchmarks.peers FOLDER_OR_FILE ... [--ways file,rows,key] [--processes P] [--minutes T]
        [--setup FILE ...]

Files are DuckDB's and SQLite's `*.test` (their statements and queries; what they expect is not read) and
Postgres's `*.sql`, whose tables are made by `--setup sql/test_setup.sql`. Plain DuckDB carries out each
statement. What a query reads is then written to Parquet, and the query is asked of the files as they lie
(`file`), of layouts by rows (`rows`) and of layouts by the first column (`key`). Plain DuckDB answers over
the same files in three orders of their rows, by one to three threads.

The exit status is 1 where an answer is wrong, an exception is none of ours, or a query hangs. What is refused
is counted by reason.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import islice, product, takewhile
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer

import duckdb
import pyarrow as pa
from relaqs_engine.duck import quote_name
from relaqs_engine.sql.dialect import tokens_of
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenType

import relaqs
from benchmarks.grid.judge import Outcome, Truth, difference, stable
from benchmarks.plain_duckdb import relation

WAYS = ("file", "rows", "key")
HANG_SECONDS = 60.0
_LONG_SECONDS = 5.0
_MOST_ROWS = 20_000
_LOOPS = 2
"""So many rounds of each loop in a test file are run."""
_IS_QUERY = re.compile(r"[(\s]*(select|with|from|values|pivot|unpivot)\b", re.IGNORECASE)
_IS_ORDERED = re.compile(r"\border\s+by\b[^()]*$", re.IGNORECASE)
_NOT_ASKED = ("both refuse", "no table", "too long")
_ORDERS = ("", " ORDER BY row_number() OVER () DESC", " ORDER BY hash(row_number() OVER ())")
_COMMENTS = re.compile(r"\A(\s|--[^\n]*(\n|\Z)|/\*.*?\*/)+", re.DOTALL)
_EXPLAIN = re.compile(r"\Aexplain\s*(\([^()]*\)|analyze\b|verbose\b|\s)*", re.IGNORECASE)
_IS_TRANSACTION = re.compile(r"(begin|start|commit|rollback|abort|end|savepoint|release)\b", re.IGNORECASE)
"""A statement that DuckDB refuses would otherwise take those with it that follow."""
_VARIABLE = re.compile(r"(?<![:\w]):(['\"]?)(\w+)\1")
_ENDS_IN_PSQL = re.compile(r"\\g(set|exec|desc|x)?\b.*$")
_FROM_INPUT = re.compile(r"copy\s+(\w+\s*(?:\([^)]*\))?)\s*from\s+stdin\b\s*([^;]*);", re.IGNORECASE)
_FROM_FILE = re.compile(r"^copy\s+(\w+)\s+from\s+('[^']+')$", re.IGNORECASE)
_AS_TEXT = r"DELIMITER '\\t', NULLSTR '\\N', HEADER false, QUOTE '', ESCAPE ''"
_TEXTS = ("name", "point", "path", "box", "lseg", "line", "circle", "polygon")
"""Types of Postgres that are text here."""
_SPAWN = get_context("spawn")


def statements_of(path: Path) -> Iterator[str]:
    """Yield the statements of a test file, loops of `*.test` written out."""
    lines = path.read_text(errors="replace").split("\n")
    yield from _of_script(iter(lines), path.parent) if path.suffix == ".sql" else _of_records(lines)


def _of_records(lines: Sequence[str]) -> Iterator[str]:
    place = 0
    while place < len(lines):
        words = lines[place].split()
        place += 1
        if not words or words[0].startswith("#"):
            continue
        if words[0] in ("loop", "foreach", "concurrentloop", "concurrentforeach") and len(words) > 2:
            end = _end_of_loop(lines, place)
            body = lines[place:end]
            values = words[2:]
            if words[0].endswith("loop"):
                values = [str(each) for each in range(*map(int, words[2:4]))] if words[2].isdigit() else []
            for value in islice(values, _LOOPS):
                yield from _of_records([line.replace("${" + words[1] + "}", value) for line in body])
            place = end + 1
        elif words[0] in ("statement", "query"):
            sql = []
            while place < len(lines) and lines[place].strip() and not lines[place].startswith("----"):
                sql.append(lines[place])
                place += 1
            while place < len(lines) and lines[place].strip():  # what is expected
                place += 1
            if words[1:2] != ["error"]:
                yield "\n".join(sql).strip().rstrip(";")
        else:
            while words[0] not in ("require", "mode", "load", "set") and (
                place < len(lines) and lines[place].strip()
            ):
                place += 1


def _end_of_loop(lines: Sequence[str], place: int) -> int:
    depth = 1
    for at in range(place, len(lines)):
        first = lines[at].split()[:1]
        depth += bool(first) and first[0].endswith(("loop", "foreach")) and first != ["endloop"]
        depth -= first == ["endloop"]
        if not depth:
            return at
    return len(lines)


def _of_script(lines: Iterator[str], folder: Path) -> Iterator[str]:
    """Yield the statements of a script for psql, those that it explains as well.

    folder: the script's, beside its data.
    """
    before = ""
    for part in re.split(r";[ \t]*(?:--[^\n]*)?\n", "\n".join(_as_sql(lines, folder))):  # ends with its line
        with suppress(TokenError):
            begin = 0
            ends = [token.end for token in tokens_of(part) if token.token_type is TokenType.SEMICOLON]
            for end in (*ends, len(part)):
                statement = _EXPLAIN.sub("", _COMMENTS.sub("", part[begin:end])).strip()
                begin = end + 1
                if statement not in ("", before) and not _IS_TRANSACTION.match(statement):
                    before = statement
                    yield _FROM_FILE.sub(rf"COPY \1 FROM \2 ({_AS_TEXT})", statement)


def _as_sql(lines: Iterator[str], folder: Path) -> Iterator[str]:
    """Yield lines without what psql alone knows: variables are put in, and rows below a COPY are inserted."""
    variables = dict[str, str]()
    for line in lines:
        if line.startswith("\\"):
            command, *words = line.split()
            if command == "\\getenv" and words[1:] == ["PG_ABS_SRCDIR"]:
                variables[words[0]] = str(folder.parent)
            elif command == "\\set" and words:
                parts = [_put_in(word, variables).strip("'") for word in words[1:]]
                variables[words[0]] = "".join(parts)
        elif given := _FROM_INPUT.match(line):
            rows = list(takewhile(lambda each: each.strip() != "\\.", lines))
            if rows and not given[2]:
                yield f"INSERT INTO {given[1]} VALUES {', '.join(map(_as_values, rows))};"
        else:
            yield _put_in(_ENDS_IN_PSQL.sub(";", line), variables)


def _put_in(line: str, variables: dict[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        mark, name = found[1], found[2]
        return f"{mark}{variables[name]}{mark}" if name in variables else found[0]

    return _VARIABLE.sub(value, line)


def _as_values(row: str) -> str:
    def value(text: str) -> str:
        plain = re.sub(r"\\(.)", lambda found: {"t": "\t", "n": "\n"}.get(found[1], found[1]), text)
        return "NULL" if text == "\\N" else "'" + plain.replace("'", "''") + "'"

    return f"({', '.join(map(value, row.split(chr(9))))})"


@dataclass(slots=True)
class Peer:
    """Plain DuckDB in which a file's statements are carried out, and what its tables were written to.

    Args:
        folder: for files and layouts.
        way: how a query's tables are stored, one of WAYS.
    """

    folder: Path
    way: str
    _duckdb: duckdb.DuckDBPyConnection = field(default_factory=duckdb.connect)
    _state: int = 0
    _seen: dict[str, int] = field(default_factory=dict)
    _folders: dict[str, Path] = field(default_factory=dict)

    def set_up(self, files: Iterable[Path]) -> None:
        """Carry out the statements of files that make tables for others."""
        for name in _TEXTS:
            self.outcome(f"CREATE TYPE {name} AS VARCHAR")
        for sql in (sql for path in files for sql in statements_of(path)):
            if not _IS_QUERY.match(sql):
                self.outcome(sql)

    def outcome(self, sql: str) -> Outcome | None:
        """Return what becomes of a statement; None where it is no query over tables."""
        if not _IS_QUERY.match(sql):
            self._state += 1
            with suppress(duckdb.Error):
                self._within_limits(sql)
            return None
        try:
            if self._within_limits(sql) is None:
                return Outcome("too long")
            names = self._tables(sql)
        except duckdb.Error:
            return Outcome("both refuse")  # it is about what the file itself has set up
        if names is None:
            return Outcome("no table", "it reads a table of another schema")
        try:
            for name in names:
                self._write(name)
        except (duckdb.Error, pa.ArrowException, relaqs.RelaqsError, OSError) as error:
            return Outcome("no table", stable(str(error)), str(error))
        with ExitStack() as undo:
            return self._compared(sql, names, undo)

    def _within_limits(self, sql: str) -> pa.Table | None:
        """Return the rows; None where they are many."""
        timer = Timer(_LONG_SECONDS, self._duckdb.interrupt)
        timer.start()
        try:
            found = self._duckdb.sql(sql)
            table = None if found is None else found.limit(_MOST_ROWS).to_arrow_table()
            return table if table is not None and table.num_rows < _MOST_ROWS else None
        finally:
            timer.cancel()

    def _tables(self, sql: str) -> list[str] | None:
        """Return the tables and views of the statement; None where it reads something else by a name."""
        found = self._duckdb.execute(
            "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'main' "
            "UNION SELECT view_name FROM duckdb_views() WHERE schema_name = 'main' AND NOT internal"
        ).fetchall()
        known = {name.lower(): name for (name,) in found}
        named = [name.strip('"').lower() for name in self._duckdb.get_table_names(sql)]
        if not all(name in known for name in named):
            return None
        return [known[name] for name in {token.text.lower() for token in tokens_of(sql)} if name in known]

    def _write(self, name: str) -> None:
        """Write a table as it is now, unless that was done."""
        if self._seen.get(name) == self._state:
            return
        if name not in self._folders or not self._is_unchanged(name):
            base = self.folder / str(self._state) / name.lower()
            (base / "layout").mkdir(parents=True, exist_ok=True)
            for number, order in enumerate(_ORDERS):
                rows = self._duckdb.sql(f"SELECT * FROM {quote_name(name)}{order}")
                rows.write_parquet(str(base / f"{number}.parquet"))
            if self.way != "file":
                key = rows.columns[0] if self.way == "key" else None
                if rows.limit(1).fetchall():
                    relaqs.shuffle(base / "0.parquet", base / "layout" / name, partitions=3, cluster_by=key)
                else:
                    relaqs.add_static(base / "0.parquet", base / "layout" / name)
            self._folders[name] = base
        self._seen[name] = self._state

    def _is_unchanged(self, name: str) -> bool:
        before = self._folders[name] / "0.parquet"
        with suppress(duckdb.Error):
            now = self._duckdb.sql(f"SELECT * FROM {quote_name(name)}").to_arrow_table()
            then = relation(f"FROM '{before}'").to_arrow_table()
            return bool(now.equals(then))
        return False

    def _compared(self, sql: str, names: Sequence[str], undo: ExitStack) -> Outcome:
        truth = self._truth(sql, names)
        try:
            sources = {name: self._source(name) for name in names} or {"nothing": pa.table({"a": [1]})}
            session = relaqs.connect(
                tables=sources, threads=2, exact_below_seconds=0.0, background_layouts=False
            )
            undo.enter_context(session)
            query = session.online_sql(sql, batches=3 if self.way != "file" else None)
            last = query.result()
        except relaqs.RelaqsError as error:
            if isinstance(error, relaqs.InternalError):
                return Outcome("raw", stable(str(error)), str(error))
            kind = "both refuse" if truth.table is None else "refused"
            return Outcome(kind, stable(str(error)), str(error))
        except Exception as error:
            return Outcome("raw", stable(f"{type(error).__name__}: {error}"), repr(error))
        if truth.table is None:
            return Outcome("both refuse" if truth.is_ambiguous else "wrong", "DuckDB refuses", truth.error)
        said = difference(last.estimate, truth)
        if said and truth.is_ordered and self._differ_in_ties(sql, last.estimate, truth.table):
            return Outcome("ambiguous", "", "", type(query.plan).__name__)
        if said and not (truth.is_ambiguous and said.startswith(("rows", "values"))):
            return Outcome("wrong", stable(said), said, type(query.plan).__name__)
        return Outcome("ambiguous" if truth.is_ambiguous else "equal", "", "", type(query.plan).__name__)

    def _differ_in_ties(self, sql: str, ours: pa.Table, theirs: pa.Table) -> bool:
        """Whether two answers have the same rows, ordered alike by the outputs that ORDER BY names."""
        items = [each.split() for each in sql[sql.lower().rindex("order by") + 8 :].split(",")]
        named = {word: name for name in theirs.column_names for word in (name.lower(), f'"{name.lower()}"')}
        named |= {str(number): name for number, name in enumerate(theirs.column_names, 1)}
        keys = [named.get(words[0].lower()) for words in items if words]
        if None in keys or difference(ours, Truth(theirs)):
            return False
        return not difference(ours.select(keys), Truth(theirs.select(keys), is_ordered=True))

    def _source(self, name: str) -> Path:
        path = self._folders[name]
        return path / "0.parquet" if self.way == "file" else path / "layout" / name

    def _truth(self, sql: str, names: Sequence[str]) -> Truth:
        tables, error = list[pa.Table](), ""
        for number in range(len(_ORDERS)):
            with duckdb.connect(config={"threads": 1 + number}) as connection:
                try:
                    for name in names:
                        file = self._folders[name] / f"{number}.parquet"
                        rows = f"read_parquet('{file}', can_have_nan = true)"
                        connection.execute(f"CREATE VIEW {quote_name(name)} AS FROM {rows}")
                    tables.append(connection.sql(sql).to_arrow_table())
                except duckdb.Error as raised:
                    error = f"{type(raised).__name__}: {raised}"
        if error:
            return Truth(None, error, is_ambiguous=bool(tables))
        is_ambiguous = any(difference(table, Truth(tables[0])) for table in tables[1:])
        is_ordered = bool(_IS_ORDERED.search(sql)) and not any(
            difference(table, Truth(tables[0], is_ordered=True)) for table in tables[1:]
        )
        return Truth(tables[0], "", is_ambiguous, is_ordered)


# Processes that run files, and what watches over them


@dataclass(slots=True)
class _Worker:
    """A process that runs one file in one way. sql: what it asks, since `begun`; done: its number."""

    process: BaseProcess
    pipe: Connection
    path: Path
    way: str
    begun: float
    done: int = 0
    sql: str = ""


def _start(path: Path, way: str, setup: Sequence[Path], skipped: int = 0) -> _Worker:
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_serve, args=(theirs, path, way, setup, skipped))
    process.start()
    theirs.close()
    return _Worker(process, ours, path, way, time.monotonic(), skipped)


def _serve(pipe: Connection, path: Path, way: str, setup: Sequence[Path], skipped: int) -> None:
    """Run a file's statements, the first queries without asking them of us."""
    import signal
    import warnings

    from relaqs.queries import tables

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    tables.announce = lambda message: None
    os.environ.setdefault("RELAQS_STRICT", "1")  # a fault is shown, and not answered by a whole run
    with TemporaryDirectory(prefix="relaqs-peers-", ignore_cleanup_errors=True) as folder:
        os.chdir(folder)
        os.environ["RELAQS_CACHE"] = str(Path(folder) / "cache")
        peer = Peer(Path(folder), way)
        peer.set_up(setup)
        for number, sql in enumerate(statements_of(path)):
            if number < skipped and _IS_QUERY.match(sql):
                continue
            pipe.send((number, sql, None))
            outcome = peer.outcome(sql)
            pipe.send((number, sql, outcome))
    pipe.send(None)


def run(
    files: Iterable[tuple[Path, str]], processes: int, until: float, setup: Sequence[Path] = ()
) -> Iterator[tuple[Path, str, str, Outcome]]:
    """Yield file, way, query and outcome as they come. until: no file begins later, `time.monotonic`."""
    waiting, busy = iter(files), list[_Worker]()
    try:
        while True:
            while len(busy) < processes and time.monotonic() < until and (found := next(waiting, None)):
                busy.append(_start(*found, setup))
            if not busy:
                return
            ready = wait([worker.pipe for worker in busy], timeout=1.0)
            for worker in list(busy):
                if worker.pipe in ready:
                    try:
                        told = worker.pipe.recv()
                    except EOFError:
                        told = (worker.done, worker.sql, Outcome("raw", "the process ended"))
                        busy.remove(worker)
                        if worker.sql:
                            busy.append(_start(worker.path, worker.way, setup, worker.done + 1))
                    if told is None:
                        busy.remove(worker)
                        worker.process.join(10)
                        continue
                    worker.done, worker.sql, outcome = told
                    worker.begun = time.monotonic()
                    if outcome is not None:
                        yield worker.path, worker.way, worker.sql, outcome
                elif time.monotonic() - worker.begun > HANG_SECONDS:
                    worker.process.kill()
                    busy.remove(worker)
                    busy.append(_start(worker.path, worker.way, setup, worker.done + 1))
                    yield worker.path, worker.way, worker.sql, Outcome("hang", f"{HANG_SECONDS:.0f} seconds")
    finally:
        for worker in busy:
            worker.process.kill()


def files_of(paths: Iterable[Path]) -> list[Path]:
    """Return the test files among some files and folders."""
    found = [
        each
        for path in paths
        for each in ([path] if path.is_file() else sorted(path.rglob("*")))
        if each.suffix in (".test", ".sql")
    ]
    return list(dict.fromkeys(found))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__.split("\n")[0])
    parser.add_argument("paths", nargs="+", type=Path, metavar="FOLDER_OR_FILE")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=60.0, help="no file begins later")
    parser.add_argument("--every", type=int, default=1, help="one file in so many")
    parser.add_argument(
        "--setup", nargs="*", type=Path, default=[], metavar="FILE", help="makes tables for each"
    )
    given = parser.parse_args(arguments)
    files = files_of(given.paths)[:: given.every]
    kinds, refused, examples = Counter[str](), Counter[str](), dict[str, str]()
    failing = list[str]()
    until = time.monotonic() + 60 * given.minutes
    try:
        ways = product(files, given.ways.split(","))
        for path, way, sql, outcome in run(ways, given.processes, until, given.setup):
            kinds[outcome.kind] += 1
            if outcome.kind in ("refused", "no table"):
                refused[outcome.reason] += 1
                examples.setdefault(
                    outcome.reason, f"{outcome.detail[:300]}\n         {path.name}: {sql[:400]!r}"
                )
            elif outcome.kind in ("wrong", "raw", "hang"):
                text = f"# {outcome.kind} ({way}, {outcome.path}), {path}\n{sql}\n# {outcome.detail[:600]}"
                failing.append(text)
                print(f"\n{text}", flush=True)
            if sum(kinds.values()) % 100 == 0:
                print(f"{sum(kinds.values()):,} queries: {dict(kinds)}", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
    asked = sum(kinds.values()) - sum(kinds[kind] for kind in _NOT_ASKED)
    print(f"\n{len(files)} files, {sum(kinds.values()):,} queries, {asked:,} asked that DuckDB answers")
    for kind, count in kinds.most_common():
        print(f"{count:8,} {kind}")
    for reason, count in refused.most_common():
        print(f"{count:8,} refused: {reason}\n         {examples[reason]}")
    return 1 if failing else 0


if __name__ == "__main__":
    raise SystemExit(main())
