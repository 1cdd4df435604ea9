"""The eight tables of TPC-H in a warehouse folder: generated, then laid out, each once.

- `TpchTable`: how large each is, and how it is laid out at a scale, some of them twice.
- The program `tpchgen-cli`, of the package of that name, generates them.
- A record in the folder says what was generated so far. It lets a stopped run go on, and keeps two recipes
  from mixing.
- How far a run has come is counted in bytes generated and bytes laid out, as a share of both together.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from relaqs_engine.errors import DataError, LayoutError
from relaqs_engine.layouts import Layout, add_static, read_manifest
from relaqs_engine.layouts.build import Progress
from relaqs_engine.layouts.manifest import LAYOUT_MARK

from relaqs.executors.spreading import shuffle

LARGEST_STATIC_ROWS = 10_000_000  # every worker reads a static table whole: 10 M rows are about 0.5 GB


@dataclass(frozen=True, slots=True)
class TpchTable:
    """One table, or another layout of it.

    Attributes:
        rows, parquet_bytes: at scale 1, as the generator writes them.
        name: of the folder; orders@customer is another layout of orders.
        grows: whether both are proportional to the scale.
        cluster_key: rows that share it stay together when the table is sampled; without it the sampling unit
            is a row.
        is_stream: sampled at every scale.
    """

    name: str
    rows: int
    parquet_bytes: int
    cluster_key: tuple[str, ...] = ()
    is_stream: bool = False
    grows: bool = True

    @property
    def original(self) -> str:
        """Return the name the generator knows the table by."""
        return self.name.partition(LAYOUT_MARK)[0]

    @property
    def is_second(self) -> bool:
        """Whether this is another layout of a table, beside its first."""
        return self.name != self.original

    def rows_at(self, scale: float) -> int:
        """Return about how many rows there are: lineitem's number varies a little."""
        return round(self.rows * scale) if self.grows else self.rows

    def parquet_bytes_at(self, scale: float) -> int:
        return round(self.parquet_bytes * scale) if self.grows else self.parquet_bytes

    def is_sampled_at(self, scale: float) -> bool:
        """Whether the table is laid out in partitions, and not read whole by every worker."""
        return self.is_stream or self.rows_at(scale) > LARGEST_STATIC_ROWS


# The largest first: once it is laid out its original can go, which frees most of the disk.
# lineitem joins orders, and partsupp joins part, inside one partition once both are sampled.
TABLES: tuple[TpchTable, ...] = (
    TpchTable("lineitem", 6_001_215, 231_672_087, ("l_orderkey",), is_stream=True),
    TpchTable("orders", 1_500_000, 63_489_711, ("o_orderkey",), is_stream=True),
    TpchTable("partsupp", 800_000, 44_827_360, ("ps_partkey",)),
    TpchTable("customer", 150_000, 13_924_285),
    TpchTable("part", 200_000, 6_900_503, ("p_partkey",)),
    TpchTable("supplier", 10_000, 902_351),
    TpchTable("nation", 25, 3_394, grows=False),
    TpchTable("region", 5, 1_797, grows=False),
)


def _again(table: str, layout: str, cluster_key: str) -> TpchTable:
    first = next(each for each in TABLES if each.name == table)
    name = f"{table}{LAYOUT_MARK}{layout}"
    return replace(first, name=name, cluster_key=(cluster_key,), is_stream=True)


# By these, all 22 queries have estimates (docs/decisions/0004-second-layouts.md).
SECOND_LAYOUTS: tuple[TpchTable, ...] = (
    _again("lineitem", "part", "l_partkey"),
    _again("orders", "customer", "o_custkey"),
    _again("partsupp", "part", "ps_partkey"),
    _again("customer", "customer", "c_custkey"),
    _again("part", "part", "p_partkey"),
)


def layouts_at(scale: float, *, second_layouts: bool) -> tuple[TpchTable, ...]:
    """Return what is laid out at a scale, all layouts of a table one after another.

    A second layout that would repeat the first one, as partsupp's does where it is sampled, is left out.
    """
    found = []
    for table in TABLES:
        found.append(table)
        repeated = table.cluster_key if table.is_sampled_at(scale) else None
        for second in SECOND_LAYOUTS if second_layouts else ():
            if second.original == table.name and second.cluster_key != repeated:
                found.append(second)
    return tuple(found)


FILE_NAME = "tpch.json"


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that decides the content of the tables: two runs with the same recipe make the same files."""

    scale: float
    seed: int
    partitions: int

    def __str__(self) -> str:
        return f"scale {self.scale:g}, seed {self.seed}, {self.partitions} partitions"


@dataclass(frozen=True, slots=True)
class Record:
    """A recipe, the names of the layouts that are complete, and whether the generator's own files stay."""

    recipe: Recipe
    done: tuple[str, ...] = ()
    keeps_originals: bool = False

    def with_done(self, table: str) -> Record:
        return replace(self, done=(*self.done, table))

    def only(self, tables: Iterable[str]) -> Record:
        return replace(self, done=tuple(tables))


def read_record(folder: Path) -> Record | None:
    """Return the folder's record, or None where there is none. Raises LayoutError if it is damaged."""
    path = folder / FILE_NAME
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        recipe = Recipe(float(content["scale"]), int(content["seed"]), int(content["partitions"]))
        return Record(recipe, tuple(map(str, content["tables"])), bool(content.get("keeps_originals")))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise LayoutError(
            f"{path} is not a record of generated tables ({error!r}); use --force to start anew"
        ) from error


def write_record(folder: Path, record: Record) -> None:
    """Replace the folder's record, at once or not at all."""
    recipe = record.recipe
    content = {
        "scale": recipe.scale,
        "seed": recipe.seed,
        "partitions": recipe.partitions,
        "tables": list(record.done),
        "keeps_originals": record.keeps_originals,
    }
    draft = folder / (FILE_NAME + ".new")
    draft.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    os.replace(draft, folder / FILE_NAME)


class Meter:
    """Turns steps into shares.

    Args:
        generating: tables to generate.
        laying: tables to lay out, in this order.
    """

    def __init__(
        self,
        scale: float,
        generating: Sequence[TpchTable],
        laying: Sequence[TpchTable],
        progress: Progress | None,
    ) -> None:
        self._scale = scale
        self._to_generate = self._bytes(generating)
        self._all = self._to_generate + self._bytes(laying)
        self._laid = 0
        self._progress = progress or (lambda share, doing: None)

    def generated(self, written_bytes: int) -> None:
        self._report(min(written_bytes, self._to_generate), "generating")

    def laying_out(self, table: TpchTable) -> Progress:
        """Return what is to be told how far this table is; the tables named before it are laid out."""
        before = self._to_generate + self._laid
        size = self._bytes([table])
        self._laid += size
        self._report(before, f"laying out {table.name}")
        return lambda share, _: self._report(before + share * size, f"laying out {table.name}")

    def _bytes(self, tables: Sequence[TpchTable]) -> int:
        return sum(table.parquet_bytes_at(self._scale) for table in tables)

    def _report(self, done_bytes: float, doing: str) -> None:
        self._progress(done_bytes / self._all, doing)


PACKAGE = "tpchgen-cli"
REPORT_SECONDS = 0.2
# Columns of many values, for which the generator would try a dictionary in vain.
_KEYS = {
    "lineitem": ("l_orderkey", "l_partkey", "l_suppkey"),
    "orders": ("o_orderkey", "o_custkey"),
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "customer": ("c_custkey",),
    "part": ("p_partkey",),
}
_VALUES = {
    "lineitem": ("l_extendedprice", "l_comment"),
    "orders": ("o_totalprice", "o_comment"),
    "partsupp": ("ps_supplycost", "ps_comment"),
    "customer": ("c_name", "c_address", "c_phone", "c_acctbal", "c_comment"),
    "part": ("p_name", "p_comment"),
}
UNFINISHED_SUFFIX = ".inprogress"  # the generator writes under this name and renames at the end


def write_tables(
    tables: Sequence[str],
    scale: float,
    into: Path,
    on_bytes: Callable[[int], None] = lambda written: None,
    is_temporary: bool = False,
) -> None:
    """Generate `<table>.parquet` of each table into the folder; a file of that name is complete.

    The generator never outlives this call, and leaves no unfinished file.

    Args:
        tables: their names.
        scale: as in `relaqs_tpch.data.generate`.
        into: the folder.
        on_bytes: told now and then how many bytes the folder holds.
        is_temporary: the files are only read once, to be laid out. They are written in less time, and not as
            the generator writes them by itself.

    Raises:
        DataError: it fails, with the generator's own words.
    """
    command = [str(find_program()), "parquet", "--quiet", "--scale-factor", str(scale)]
    command += ["--tables", ",".join(tables), "--output-dir", str(into)]
    command += _quick_options(tables) if is_temporary else []
    with TemporaryFile("w+", encoding="utf-8", errors="replace") as said, _no_unfinished_files(into):
        exit_code = _run(command, said, lambda: on_bytes(_written_bytes(into)))
        if exit_code != 0:
            said.seek(0)
            words = said.read().strip() or "it said nothing"
            raise DataError(
                f"{PACKAGE} could not make {', '.join(tables)} at scale {scale:g} (exit {exit_code}): {words}"
            )


def _quick_options(tables: Iterable[str]) -> list[str]:
    """Return how Parquet is written, and read again, in the least time."""
    keys, values = [_KEYS.get(table, ()) for table in tables], [_VALUES.get(table, ()) for table in tables]
    encodings = [f"{column}=DELTA_BINARY_PACKED" for columns in keys for column in columns]
    encodings += [f"{column}=PLAIN" for columns in values for column in columns]
    options = ["--compression", "LZ4_RAW", "--row-group-bytes", "32MB"]
    return [*options, "--column-encoding", ",".join(encodings)] if encodings else options


def _run(command: Sequence[str], said: IO[str], report: Callable[[], None]) -> int:
    """Return the exit code. An exception here, KeyboardInterrupt included, ends the process first."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said) as process:
        try:
            while True:
                try:
                    return process.wait(REPORT_SECONDS)
                except subprocess.TimeoutExpired:
                    report()
        except BaseException:
            process.kill()
            raise


@contextmanager
def _no_unfinished_files(folder: Path) -> Iterator[None]:
    """Remove what a run that was killed has left, ours at the end and an earlier one's at the start."""

    def remove() -> None:
        for path in folder.glob(f"*{UNFINISHED_SUFFIX}"):
            path.unlink()

    remove()
    try:
        yield
    finally:
        remove()


def _written_bytes(folder: Path) -> int:
    written = 0
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # finished, and so renamed, since it was listed
            written += path.stat().st_size
    return written


def find_program() -> Path:
    """Return the generator's path: where its package put it, else beside this Python, else on the PATH.

    Raises DataError if it is in none of these places.
    """
    for path in [*_installed_files(), Path(sys.executable).with_name(PACKAGE)]:
        if path.is_file():
            return path
    if found := shutil.which(PACKAGE):
        return Path(found)
    raise DataError(
        f"the package {PACKAGE}, which makes the data, is missing; install it with pip install 'relaqs[demo]'"
    )


def _installed_files() -> list[Path]:
    try:
        files = distribution(PACKAGE).files or []
    except PackageNotFoundError:
        return []
    return [
        Path(str(file.locate())) for file in files if file.stem == PACKAGE and file.suffix in ("", ".exe")
    ]


ORIGINALS = "tpch-raw"  # folder, inside the warehouse, of the Parquet files as the generator wrote them
SPARE_BYTES = 64 << 20


def generate(
    scale: float,
    into: str | Path,
    *,
    partitions: int = 100,
    seed: int = 0,
    force: bool = False,
    keep_raw: bool = False,
    second_layouts: bool = False,
    progress: Progress | None = None,
) -> dict[str, Layout]:
    """Return the layouts of the eight tables at a scale, made below `into` where they are not there yet.

    lineitem and orders are co-clustered by order key. Every other table is static while it is small: see
    `relaqs_tpch.data`. A run that was stopped goes on where it stopped. Each layout is there whole or not
    at all. No figure measured on this data is comparable to an official TPC-H result.

    Args:
        scale: 1 is 6 million rows of lineitem.
        into: the warehouse's folder.
        partitions: of a sampled table.
        seed: of the random order of rows.
        force: replace tables that are there.
        keep_raw: keep the generator's own Parquet files in `into`/tpch-raw, to compare with plain DuckDB.
        second_layouts: also lay lineitem, partsupp and part out by part key, and orders and customer by
            customer key, as orders@customer and so on. They can be added to tables that are there.
        progress: called with a share in [0, 1] and what is being done.

    Raises:
        LayoutError: the folder holds tables of another scale, seed or origin and `force` is not given, or the
            disk is too small.
        DataError: the generator fails.
    """
    if not (math.isfinite(scale) and scale > 0):
        raise LayoutError(f"scale is {scale}; it must be above 0, e.g. 1 for 6 million rows of lineitem")
    folder = Path(into).absolute()
    record = _begin(folder, Recipe(float(scale), seed, partitions), force=force)
    record = _with_originals(folder, record) if keep_raw else record
    layouts = layouts_at(scale, second_layouts=second_layouts)
    missing = [table for table in layouts if table.name not in record.done]
    read = {table.original for table in (TABLES if keep_raw else missing)}
    wanted = [table for table in TABLES if table.name in read and not _original(folder, table).exists()]
    _check_disk_space(folder, scale, wanted, missing)
    meter = Meter(scale, wanted, missing, progress)
    if wanted:
        (folder / ORIGINALS).mkdir(exist_ok=True)
        names = [table.name for table in wanted]
        write_tables(names, scale, folder / ORIGINALS, meter.generated, not record.keeps_originals)
    for position, table in enumerate(missing, start=1):
        _lay_out(folder, table, record.recipe, meter.laying_out(table))
        record = record.with_done(table.name)
        write_record(folder, record)
        is_read_again = any(later.original == table.original for later in missing[position:])
        if not record.keeps_originals and not is_read_again:
            _original(folder, table).unlink()
    with suppress(OSError):  # not empty: originals are kept
        (folder / ORIGINALS).rmdir()
    in_order = sorted(layouts, key=lambda table: table.is_second)
    return {table.name: read_manifest(folder / table.name) for table in in_order}


def _with_originals(folder: Path, record: Record) -> Record:
    """Return the record of a folder that keeps its originals from now on, also when it is added to."""
    record = replace(record, keeps_originals=True)
    write_record(folder, record)
    return record


def _begin(folder: Path, recipe: Recipe, *, force: bool) -> Record:
    """Return what a run may build on, after making sure that it mixes nothing: a record of this recipe."""
    found = None if force else read_record(folder)
    if found is None or (found.recipe != recipe and not found.done):  # nothing is there to be mixed with
        strangers = [table.name for table in (*TABLES, *SECOND_LAYOUTS) if (folder / table.name).exists()]
        if strangers and not force:
            raise LayoutError(
                f"{folder} already holds {', '.join(strangers)}, not made by `relaqs tpch generate`; "
                "name another folder, or give --force to replace them"
            )
        found = Record(recipe)
        folder.mkdir(parents=True, exist_ok=True)
        write_record(folder, found)
        for stale in (ORIGINALS, *(table.name for table in SECOND_LAYOUTS)):  # of data that is replaced
            shutil.rmtree(folder / stale, ignore_errors=True)
    if found.recipe != recipe:
        raise LayoutError(
            f"{folder} holds TPC-H at {found.recipe}, and {recipe} was asked for; "
            "name another folder, or give --force to replace it"
        )
    return found.only(name for name in found.done if (folder / name).exists())


def _check_disk_space(
    folder: Path, scale: float, wanted: Sequence[TpchTable], missing: Sequence[TpchTable]
) -> None:
    """Raise LayoutError unless the originals and the layouts, about as large, fit beside each other."""
    needed = SPARE_BYTES + sum(table.parquet_bytes_at(scale) for table in [*wanted, *missing])
    free = shutil.disk_usage(folder).free
    if missing and needed > free:
        raise LayoutError(
            f"TPC-H at scale {scale:g} needs about {needed / 1e9:,.2f} GB in {folder}, which has "
            f"{free / 1e9:,.2f} GB free; name a folder on a larger disk, or a smaller scale"
        )


def _lay_out(folder: Path, table: TpchTable, recipe: Recipe, progress: Progress) -> Layout:
    """Return the table's layout. One that is there already is of a run that ended before recording it."""
    source, into = str(_original(folder, table)), folder / table.name
    if not table.is_sampled_at(recipe.scale):
        return add_static(source, into, force=True)
    return shuffle(
        source,
        into,
        partitions=recipe.partitions,
        cluster_by=table.cluster_key or None,
        seed=recipe.seed,
        force=True,
        progress=progress,
    )


def _original(folder: Path, table: TpchTable) -> Path:
    return folder / ORIGINALS / f"{table.original}.parquet"
