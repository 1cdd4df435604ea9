"""Check a layout against its manifest: the files are as written, and the rows are a random sample.

**Chance.** Whether counts look as equal chances make them: chi-square tests on where sampling units fell.

This is pure arithmetic on counts. Deviations are by Wilson and Hilferty's cube-root normal approximation
(1931). From three degrees of freedom on it is close enough to tell a broken hash from luck.
"""

from __future__ import annotations

import hashlib
import math
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import chain, cycle
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from relaqs_engine.duck import Cursor, open_for_writing, parquet_rows, quote_name, quote_text
from relaqs_engine.errors import LayoutError, RelaqsError
from relaqs_engine.layouts.assignment import HASH_SCHEME, Assignment, hash_probe, key_unit, known_by
from relaqs_engine.layouts.column_statistics import (
    HASHES,
    column_statistics,
    counted_by_group,
    ends_by,
    zones_of,
)
from relaqs_engine.layouts.heavy_units import any_above, rows_of_units
from relaqs_engine.layouts.manifest import (
    BLOCK_COLUMN,
    BLOCK_COUNT,
    DistinctCount,
    HeavyUnits,
    Layout,
    OutlierUnits,
    Partition,
    Scalar,
    StoredFile,
)
from relaqs_engine.layouts.manifest_file import read_manifest, tables_at
from relaqs_engine.layouts.outliers import faults_of_units, outlier_condition, unit_condition
from relaqs_engine.layouts.remote import download, stored_tables
from relaqs_engine.stores.address import Address

Counts = NDArray[np.int64]

_FEWEST_EXPECTED = 5.0
"""A cell must be expected to hold this many units for the chi-square distribution to fit (Cochran 1954)."""
_SUSPICIOUS_DEVIATION = 5.0
"""Standard deviations from chance, either way. One sound layout in two million is further away."""


@dataclass(frozen=True, slots=True)
class RandomnessTest:
    """The result of one test.

    Attributes:
        deviation: the same in standard normal deviations. Large means uneven. Far below zero means too even
            to be chance.
    """

    chi_square: float
    degrees: int
    deviation: float

    @property
    def is_plausible(self) -> bool:
        return abs(self.deviation) <= _SUSPICIOUS_DEVIATION


def evenness(counts: Counts) -> RandomnessTest | None:
    """Test counts, shape (cells,), against equal chances. None if there are too few units to tell."""
    expected = counts.sum() / max(len(counts), 1)
    if len(counts) < 4 or expected < _FEWEST_EXPECTED:
        return None
    return _test(float(((counts - expected) ** 2 / expected).sum()), len(counts) - 1)


def independence(table: Counts) -> RandomnessTest | None:
    """Test whether row and column of a unit are independent, given counts of shape (rows, columns).

    Rows and columns without units do not count. Neighbouring rows are taken together until each cell is
    expected to hold enough units. None if fewer than two rows are left.
    """
    used = table[table.any(axis=1)][:, table.any(axis=0)]
    rows, columns = used.shape
    groups = min(rows, int(used.sum() / (_FEWEST_EXPECTED * max(columns, 1))))
    if groups < 2 or columns < 2:
        return None
    merged = np.add.reduceat(used, np.arange(groups) * rows // groups, axis=0)
    expected = np.outer(merged.sum(axis=1), merged.sum(axis=0)) / merged.sum()
    chi_square = float(((merged - expected) ** 2 / expected).sum())
    return _test(chi_square, (groups - 1) * (columns - 1))


def _test(chi_square: float, degrees: int) -> RandomnessTest:
    spread = 2.0 / (9.0 * degrees)
    deviation = ((chi_square / degrees) ** (1.0 / 3.0) - (1.0 - spread)) / math.sqrt(spread)
    return RandomnessTest(chi_square, degrees, deviation)


_MOST_FAULTS_SHOWN = 3
_ROUNDING = 1e-9
_MOST_DEVIATIONS = 5.0


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold for a table.

    Attributes:
        detail: what was found, in words.
    """

    table: str
    name: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Everything that was checked. `relaqs.verify` returns it.

    >>> VerifyReport((Check("trips", "rows", True, "2,000 rows"),)).ok
    True
    """

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether every check found the table as it should be."""
        return all(check.ok for check in self.checks)


def verify(directory: str | Path) -> VerifyReport:
    """Return what was checked in a table's folder, or in every table of a warehouse, a folder or an address.

    Every byte is read. The properties of a sample are checked only if all files are as written. Raises
    LayoutError if there is no layout to check.

    >>> import pyarrow as pa
    >>> from relaqs_engine.layouts import shuffle
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = shuffle(pa.table({"fare": list(range(2000))}), f"{folder}/trips", partitions=4)
    ...     report = verify(folder)
    >>> report.ok, [check.name for check in report.checks][:4]
    (True, ['files', 'checksums', 'schema', 'rows'])
    >>> report.checks[3].detail
    '2,000 rows'
    """
    if (address := Address.of(directory)) is not None:
        return VerifyReport(tuple(_checks_of_stored(address)))
    folder = Path(os.path.abspath(directory))
    with _scratch_cursor() as cursor:
        return VerifyReport(tuple(check for table in tables_at(folder) for check in _checks(table, cursor)))


def _checks_of_stored(address: Address) -> Iterator[Check]:
    """Yield the checks of tables in a store, each of which is copied to this machine meanwhile."""
    if not (tables := stored_tables(address)):
        raise LayoutError(f"{address} holds no layout to check; name a table or a folder of tables")
    for table in tables:
        with tempfile.TemporaryDirectory() as scratch, _scratch_cursor() as cursor:
            yield from _checks(download(table, Path(scratch)), cursor)


@contextmanager
def _scratch_cursor() -> Iterator[Cursor]:
    with tempfile.TemporaryDirectory() as spill, closing(open_for_writing(Path(spill))) as cursor:
        yield cursor


def _checks(folder: Path, cursor: Cursor) -> Iterator[Check]:
    try:
        layout = read_manifest(folder)
    except LayoutError as error:
        yield Check(folder.name, "manifest", False, str(error))
        return
    files = list(_file_checks(layout, cursor))
    yield from files
    if all(check.ok for check in files):
        yield from _content_checks(layout, cursor)


def _content_checks(layout: Layout, cursor: Cursor) -> Iterator[Check]:
    """Yield whether what the manifest says of the rows is so. The files are as written."""
    yield _ends_check(layout, cursor)
    if any(column.distinct or column.is_counted for column in layout.columns):
        yield _distinct_check(layout, cursor)
    if any(column.ends_by for column in layout.columns) and layout.hash_probe == hash_probe(cursor):
        yield _ends_by_check(layout, cursor)
    if layout.outliers is not None:
        yield _outlier_check(layout, cursor)
    if layout.outlier_units is not None:
        yield _outlier_unit_check(layout, layout.outlier_units, cursor)
    if layout.heavy is not None:
        yield _heavy_check(layout, layout.heavy, cursor)
    for companion in layout.companions:
        fine = f"{companion.rows.row_count:,} rows of heavy units of another table"
        yield _check(layout, "companion", fine, _faults_of_units(layout, companion.rows, cursor))
    if layout.is_sampled:
        yield from _sample_checks(layout, _units_of(layout, cursor), cursor)
    if layout.heads:
        fine = f"{len(layout.heads):,} heads with the recorded units and rows in their blocks"
        yield _check(layout, "heads", fine, _faults_of_heads(layout, cursor))


def _file_checks(layout: Layout, cursor: Cursor) -> Iterator[Check]:
    schema = [(column.name, column.type) for column in layout.columns]
    schema += [(BLOCK_COLUMN, "UTINYINT")] * layout.is_sampled

    def has_schema(path: Path, _: StoredFile) -> str | None:
        found = cursor.describe(f"SELECT * FROM {_files_sql(path)}")
        return None if found == schema else f"has the columns {found}, not {schema}"

    def has_rows(path: Path, stored: StoredFile) -> str | None:
        ((rows,),) = cursor.rows(f"SELECT count(*) FROM {_files_sql(path)}")
        return None if rows == stored.row_count else f"has {rows} rows, not {stored.row_count}"

    count = len(layout.files)
    files = "1 file" if count == 1 else f"{count} files"
    yield _of_every_file(layout, "files", f"{files} of the recorded size", _has_size)
    yield _of_every_file(layout, "checksums", "every byte is as written (SHA-256)", _has_checksum)
    yield _of_every_file(layout, "schema", f"{len(schema)} columns of the recorded types", has_schema)
    yield _of_every_file(layout, "rows", f"{layout.row_count:,} rows", has_rows)


def _of_every_file(
    layout: Layout, name: str, fine: str, fault_of: Callable[[Path, StoredFile], str | None]
) -> Check:
    """Return a check of all files. `fault_of` returns what is wrong with one file, or None."""
    faults = []
    for path, stored in zip(layout.paths, layout.files, strict=True):
        try:
            fault = fault_of(path, stored)
        except (OSError, RelaqsError) as error:
            fault = "is missing" if not path.exists() else f"cannot be read ({error})"
        if fault:
            faults.append(f"{path} {fault}")
    return _check(layout, name, fine, faults)


def _ends_check(layout: Layout, cursor: Cursor) -> Check:
    """Return whether the least and the greatest value of each column, and its NULLs, are as recorded."""
    columns = [(column.name, column.type) for column in layout.columns]
    found = column_statistics(cursor, layout.paths, columns)
    faults = []
    for recorded, measured in zip(layout.columns, found, strict=True):
        if recorded.null_count != measured.null_count:
            faults.append(f"{recorded.name} has {measured.null_count:,} NULLs, not {recorded.null_count:,}")
        for which, value, end in (
            ("least", recorded.minimum, measured.minimum),
            ("greatest", recorded.maximum, measured.maximum),
        ):
            if value is not None and not _are_one_value(cursor, recorded.type, value, end):
                faults.append(f"the {which} {recorded.name} is {end!r}, not {value!r}")
    for zones in layout.zones:
        types = [layout.column(name).type for name in zones.columns for _ in range(2)]
        again = zones_of(cursor, layout.paths, layout, zones)
        pairs = zip(chain(*zones.ends), chain(*again.ends), cycle(types), strict=False)
        is_same = len(again.ends) == len(zones.ends)
        if not is_same or not all(_are_one_value(cursor, type_, one, other) for one, other, type_ in pairs):
            faults.append(f"the ends in ranges of {zones.columns[0]} are others than those recorded")
    return _check(layout, "values", "between the recorded ends, and as many NULLs", faults)


def _are_one_value(cursor: Cursor, type_text: str, one: Scalar, other: Scalar) -> bool:
    """Whether two values are equal. Texts may be two ways to write one value of their type."""
    if not isinstance(one, str) or not isinstance(other, str) or one == other:
        return one == other
    values = [f"TRY_CAST({quote_text(value)} AS {type_text})" for value in (one, other)]
    ((are_equal,),) = cursor.rows(f"SELECT {' = '.join(values)}")
    return bool(are_equal)


def _distinct_check(layout: Layout, cursor: Cursor) -> Check:
    """Return whether each column has as many distinct values as recorded, to within five standard errors."""
    faults = []
    for column in layout.columns:
        known = column.distinct
        if column.is_counted:
            known = DistinctCount(column.distinct_count, column.distinct_count, 0.0)
        if known is not None:
            count = f"SELECT count(DISTINCT {quote_name(column.name)}) FROM {_files_sql(*layout.paths)}"
            ((values,),) = cursor.rows(count)
            slack = _MOST_DEVIATIONS * known.relative_error
            if not known.least * (1.0 - slack) <= values <= known.most * (1.0 + slack):
                faults.append(f"{column.name} has {values:,} distinct values, not {known.least:,.0f}")
    if not faults:
        faults = [*_faults_of_hashes(layout, cursor)]
    return _check(layout, "distinct values", "as many distinct values as recorded", faults)


def _ends_by_check(layout: Layout, cursor: Cursor) -> Check:
    """Return whether the ends of columns by group are those recorded."""
    faults = []
    for group in layout.columns:
        recorded = {
            each.name: ends for each in layout.columns for ends in each.ends_by if ends.by == group.name
        }
        for name, found in ends_by(cursor, layout.paths, group, list(recorded)):
            if found != recorded[name]:
                faults.append(f"the ends of {name} by {group.name} are others than those recorded")
    return _check(layout, "ends by group", "values of each group within the ends recorded", faults)


def _faults_of_hashes(layout: Layout, cursor: Cursor) -> Iterator[str]:
    """Yield which columns have other values than recorded, where this DuckDB makes the hashes of them."""
    layout = known_by(cursor, layout)
    for column in layout.columns:
        name = quote_name(column.name)
        if column.distinct is not None and column.distinct.hashes:
            found = cursor.rows(
                f"SELECT DISTINCT hash({name}) FROM {_files_sql(*layout.paths)} WHERE {name} IS NOT NULL"
            )
            if {hashed for (hashed,) in found} != set(column.distinct.hashes):
                yield f"{column.name} has other values than recorded"
        for known in column.by_group:
            group = layout.column(known.by)
            (counted,) = counted_by_group(cursor, layout.paths, column, [group], int(known.share * HASHES))
            if counted != known:
                yield f"{column.name} has other numbers of values by {known.by} than recorded"


def _outlier_check(layout: Layout, cursor: Cursor) -> Check:
    """Return whether the outlier index is as written, and has each row that belongs in it exactly once."""
    assert layout.outliers is not None
    fine = f"{layout.outliers.row_count:,} rows with values far out"
    table = f"SELECT * FROM {_files_sql(*layout.paths)} WHERE {outlier_condition(layout.columns)}"
    return _check(layout, "outlier index", fine, _faults_of_copy(layout, layout.outliers, table, cursor))


def _outlier_unit_check(layout: Layout, units: OutlierUnits, cursor: Cursor) -> Check:
    """Return whether the rows of outlier units that are not in the outlier index are as written.

    What is recorded of their number, and of all other units, holds too.
    """
    condition = f"({unit_condition(layout, units.keys)})"
    if layout.outliers is not None:
        condition += f" AND NOT {outlier_condition(layout.columns)}"
    table = f"SELECT * FROM {_files_sql(*layout.paths)} WHERE {condition}"
    if units.rows is not None:
        faults = _faults_of_copy(layout, units.rows, table, cursor)
    else:
        ((missing,),) = cursor.rows(f"SELECT count(*) FROM ({table})")
        faults = [f"{missing} rows of outlier units are not kept apart"] * bool(missing)
    faults += faults_of_units(cursor, layout, units)
    fine = f"{len(units.keys):,} values of the key with most rows, and bounds of all others"
    return _check(layout, "outlier units", fine, faults)


def _heavy_check(layout: Layout, heavy: HeavyUnits, cursor: Cursor) -> Check:
    """Return whether the index of heavy units has all of their rows, and all others keep to the bounds."""
    faults = _faults_of_units(layout, heavy.index, cursor)
    if not faults:
        light = rows_of_units(layout, layout.paths, _paths_of(layout, heavy.index), are_inside=False)
        over = any_above(heavy.bounds, 1.0 + _ROUNDING)  # sums of floats depend on their order
        units = (
            f"SELECT 1 FROM ({light}) GROUP BY {', '.join(map(quote_name, layout.cluster_key))} HAVING {over}"
        )
        ((count,),) = cursor.rows(f"SELECT count(*) FROM ({units})")
        faults = [f"{count} units outside the index are heavier than its bounds"] if count else []
    return _check(layout, "heavy units", f"{heavy.index.unit_count:,} units that sum to most", faults)


def _faults_of_units(layout: Layout, copy: Partition, cursor: Cursor) -> list[str]:
    """Return what is wrong with a copy that must have all rows of its units."""
    table = rows_of_units(layout, layout.paths, _paths_of(layout, copy))
    return _faults_of_copy(layout, copy, table, cursor)


def _faults_of_copy(layout: Layout, copy: Partition, table: str, cursor: Cursor) -> list[str]:
    """Return what is wrong with a copy of some rows. table: the SQL of those rows of the partitions."""
    paths, faults = _paths_of(layout, copy), []
    for path, stored in zip(paths, copy.files, strict=True):
        try:
            fault = _has_size(path, stored) or _has_checksum(path, stored)
        except OSError:
            fault = "is missing"
        if fault:
            faults.append(f"{path} {fault}")
    if faults:
        return faults
    index = f"FROM {_files_sql(*paths)}"
    ((rows,),) = cursor.rows(f"SELECT count(*) {index}")
    if rows != copy.row_count:
        return [f"{', '.join(map(str, paths))} has {rows} rows, not {copy.row_count}"]
    ((missing,),) = cursor.rows(f"SELECT count(*) FROM (({table}) EXCEPT ALL ({index}))")
    ((further,),) = cursor.rows(f"SELECT count(*) FROM (({index}) EXCEPT ALL ({table}))")
    names = ", ".join(map(str, paths))
    return [f"{names} lacks {missing} rows and has {further} that no partition has"] * bool(missing + further)


def _paths_of(layout: Layout, copy: Partition) -> tuple[Path, ...]:
    return tuple(layout.directory / each.file for each in copy.files)


def _has_size(path: Path, stored: StoredFile) -> str | None:
    size = path.stat().st_size
    return None if size == stored.byte_count else f"has {size} bytes, not {stored.byte_count}"


def _has_checksum(path: Path, stored: StoredFile) -> str | None:
    """Return what is wrong with a file's bytes, by the checksum of all and by those that queries look at."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != stored.sha256:
        return "does not hold the bytes that were written"
    known = stored.checksums
    if known is not None and known.damaged(path, range(len(known.columns))):
        return "has other checksums of its columns than recorded"
    return None


@dataclass(frozen=True, slots=True)
class _Units:
    """What a layout's files hold.

    Attributes:
        rows: counts of rows, shape (partitions, blocks).
        units: counts of sampling units, in the same shape.
        split_keys: how many cluster keys were found in more than one partition or block.
        largest: the rows of the largest unit.
        typical: the rows of the unit that a row belongs to, on average.
    """

    rows: Counts
    units: Counts
    split_keys: int
    largest: int
    typical: float


def _units_of(layout: Layout, cursor: Cursor) -> _Units:
    key = key_unit([(name, layout.column(name).type) for name in layout.cluster_key])
    names = [f"k{i}" for i in range(len(key))]
    for i in range(len(layout.partitions)):
        columns = [f"{expression} AS {name}" for expression, name in zip(key, names, strict=True)]
        selected = ", ".join([f"{i} AS part", f"{BLOCK_COLUMN} AS block", *columns, "count(*) AS row_count"])
        begin = "INSERT INTO counted" if i else "CREATE OR REPLACE TEMP TABLE counted AS"
        cursor.run(f"{begin} SELECT {selected} FROM {_files_sql(*layout.paths_of(i))} GROUP BY ALL")
    rows = np.zeros((len(layout.partitions), BLOCK_COUNT), dtype=np.int64)
    units, split_keys, largest, typical = rows, 0, 1, 1.0
    cells = cursor.rows("SELECT part, block, sum(row_count)::BIGINT, count(*) FROM counted GROUP BY ALL")
    for part, block, row_count, _ in cells:
        rows[part, block] = row_count
    if key:
        units = np.zeros_like(rows)
        for part, block, _, unit_count in cells:
            units[part, block] = unit_count
        ((split_keys,),) = cursor.rows(
            f"SELECT count(*) FROM (SELECT 1 FROM counted GROUP BY {', '.join(names)} HAVING count(*) > 1)"
        )
        ((largest, typical),) = cursor.rows(
            "SELECT max(row_count), sum(row_count::DOUBLE ** 2) / sum(row_count) FROM counted"
        )
    cursor.run("DROP TABLE counted")
    return _Units(rows, units, split_keys, largest, typical)


def _faults_of_places(layout: Layout, cursor: Cursor) -> list[str]:
    """Return which partitions have keys that appended rows, and tables laid out alike, have elsewhere."""
    if (layout.hash_scheme, layout.hash_probe) != (HASH_SCHEME, hash_probe(cursor)):
        return []  # another DuckDB made it: nothing is taken to be in the same place
    unit = key_unit([(name, layout.column(name).type) for name in layout.cluster_key])
    assignment = Assignment(unit, layout.seed, len(layout.partitions))
    place, faults = assignment.partition(assignment.unit_hash), []
    for i in range(len(layout.partitions)):
        paths = layout.paths_of(i)
        ((count,),) = cursor.rows(f"SELECT count(*) FROM {_files_sql(*paths)} WHERE {place} <> {i}")
        if count:
            faults.append(f"{paths[0]} has {count:,} rows whose keys belong to other partitions")
    return faults


def _faults_of_heads(layout: Layout, cursor: Cursor) -> list[str]:
    found = _units_of(replace(layout, partitions=layout.heads, heads=()), cursor)
    counted = zip(layout.heads, found.rows, found.units.sum(axis=1), strict=True)
    return [
        f"{layout.directory / head.files[0].file} has other units, or rows in its blocks, than recorded"
        for head, rows, units in counted
        if (head.block_rows, head.unit_count) != (tuple(rows.tolist()), units)
    ]


def _sample_checks(layout: Layout, found: _Units, cursor: Cursor) -> Iterator[Check]:
    recorded = np.array([partition.block_rows for partition in layout.partitions], dtype=np.int64)
    wrong = np.flatnonzero((recorded != found.rows).any(axis=1))
    yield _check(
        layout,
        "blocks",
        f"{BLOCK_COUNT} blocks of the recorded rows in each partition",
        [f"{layout.paths_of(int(i))[0]} has other rows in its blocks than recorded" for i in wrong],
    )
    if layout.cluster_key:
        key = ", ".join(layout.cluster_key)
        faults = [f"{found.split_keys} values of {key} are in several partitions or blocks"]
        fine = f"each value of {key} is whole in one partition and block"
        faults = faults * bool(found.split_keys) or _faults_of_places(layout, cursor)
        yield _check(layout, "cluster keys", fine, faults)
    recorded_units = (layout.unit_count, layout.max_unit_rows)
    counted_units = (int(found.units.sum()), found.largest)
    faults = [] if recorded_units == counted_units else [f"found {counted_units}, recorded {recorded_units}"]
    for i, (partition, units) in enumerate(zip(layout.partitions, found.units.sum(axis=1), strict=True)):
        if partition.unit_count != units:
            faults.append(f"{layout.paths_of(i)[0]} has {units:,} units, not {partition.unit_count:,}")
    typical = layout.typical_unit_rows  # 1 where the layout does not say
    if typical != 1.0 and not math.isclose(typical, found.typical, rel_tol=_ROUNDING):
        faults.append(f"a row is in a unit of {found.typical:,.6g} rows on average, not {typical:,.6g}")
    yield _check(
        layout,
        "sampling units",
        f"{layout.unit_count:,} units of {layout.max_unit_rows:,} rows at most",
        faults,
    )
    yield _random(layout, "even partitions", evenness(found.units.sum(axis=1)))
    yield _random(layout, "even blocks", evenness(found.units.sum(axis=0)))
    yield _random(layout, "blocks independent of partitions", independence(found.units))


def _random(layout: Layout, name: str, test: RandomnessTest | None) -> Check:
    if test is None:
        return _check(layout, name, "too few sampling units to tell", [])
    figures = f"chi-square {test.chi_square:,.1f} on {test.degrees} degrees of freedom"
    return _check(
        layout,
        name,
        f"as chance has it: {figures}",
        [] if test.is_plausible else [f"{figures} is {test.deviation:+.1f} standard deviations from chance"],
    )


def _check(layout: Layout, name: str, fine: str, faults: list[str]) -> Check:
    shown = "; ".join(faults[:_MOST_FAULTS_SHOWN])
    if len(faults) > _MOST_FAULTS_SHOWN:
        shown += f"; and {len(faults) - _MOST_FAULTS_SHOWN} more"
    return Check(layout.table, name, not faults, shown or fine)


def _files_sql(*paths: Path) -> str:
    return parquet_rows(paths)
