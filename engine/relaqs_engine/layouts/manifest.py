"""The manifest of a layout: what is stored, how it was sampled, and what is known of the values.

`Layout` is one table as it is stored, with its columns, partitions and indexes. A part of it is a random
sample too: the first partitions are a `FirstPart`, even while the others are still being made. Their files
are the layout's own, where they will stay. By then the whole source has been read once, so the table's rows
and its columns' extremes and NULLs are known. Only the process that makes the layout knows of its first
part: no manifest names it.

What a statement reads of a table's files is a `Read`: whoever runs it can check those files first.

Beside them: which types are numbers, which hash equal values equally, so that layouts clustered on them
can meet, and what reading Parquet costs, predicted from its size by one measured rate.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal, TypeAlias

from relaqs_engine.duck import Cursor, FileState, Lent
from relaqs_engine.layouts.checksums import Checksums
from relaqs_engine.stores.mirror import Remote

_SIGNED = ("TINYINT", "SMALLINT", "INT", "INTEGER", "BIGINT", "INT128", "HUGEINT")
_UNSIGNED = ("UTINYINT", "USMALLINT", "UINT", "UINTEGER", "UBIGINT", "UHUGEINT")
WHOLE_NUMBERS = frozenset((*_SIGNED, *_UNSIGNED))
FLOATS = frozenset(("FLOAT", "DOUBLE", "REAL"))
"""Names without their parameters."""

# BIGNUM is none of them: Arrow gets its bytes, and not a number.
_FLOAT = re.compile(r"\b(FLOAT|DOUBLE)\b")
_NUMBER = re.compile(r"^(U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|DECIMAL\(.*\)|DOUBLE|FLOAT)$")


def is_number(duckdb_type: str) -> bool:
    """Whether a type, as DuckDB writes it, is one of numbers.

    >>> is_number("DECIMAL(9,2)"), is_number("INTEGER[]")
    (True, False)
    """
    return bool(_NUMBER.match(duckdb_type))


def has_floats(duckdb_type: str) -> bool:
    """Whether values of a type, as DuckDB writes it, are floats or may have floats in them.

    >>> has_floats("STRUCT(x DOUBLE)[]"), has_floats("DECIMAL(9,2)")
    (True, False)
    """
    return _FLOAT.search(duckdb_type) is not None


_INTEGERS = frozenset(
    ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")
)
_DECIMAL = re.compile(r"DECIMAL\(\d+,\s*(\d+)\)")


def hashed_type(type_text: str) -> str | None:
    """Return the DuckDB type that a key is cast to before it is hashed, None where it is hashed as it is.

    DuckDB hashes a number by how it is stored. FLOAT 1.5 and DOUBLE 1.5 hash differently, and so do equal
    DECIMALs of different widths. Integers of up to 64 bits hash alike as they are.
    """
    if type_text == "FLOAT":
        return "DOUBLE"
    if match := _DECIMAL.fullmatch(type_text):
        return f"DECIMAL(38,{match[1]})"
    return None


def key_family(type_text: str) -> str:
    """Return what two key types must have in common so that equal values fall into the same partition.

    >>> key_family("INTEGER") == key_family("BIGINT"), key_family("INTEGER") == key_family("VARCHAR")
    (True, False)
    """
    return "integer" if type_text in _INTEGERS else hashed_type(type_text) or type_text


SOON_SECONDS = 0.3
"""An answer that one core finds in less time is better given at once than estimated before."""
WORTH_SECONDS = 0.1
"""Of what one core reads in less time, a first estimate of 20 ms takes more than 20 %."""
SMALL_SECONDS = 0.02
"""From a table that one core reads in less time, all estimates together take less than 0.1 s."""

BYTES_PER_CORE_SECOND = 1e9
_BYTES_OF_A_ROW = 20
"""Measured: a core reads that much of Parquet a second, if each row counts as that many bytes more."""


def scan_core_seconds(byte_count: int, row_count: int) -> float:
    """Return about how long one core takes to read so many compressed bytes of so many rows."""
    return (byte_count + _BYTES_OF_A_ROW * row_count) / BYTES_PER_CORE_SECOND


FEW_UNIT_ROWS = 8
"""Of units with so few rows nothing more is kept: a group soon has rows of many of them."""
KEPT_HASHES = 256
"""Of values of a column. With their hashes the number stays exact when rows are added."""
BLOCK_COLUMN = "_relaqs_block"
BLOCK_COUNT = 64
MANIFEST_NAME = "manifest.json"
RECORD_NAME = "source.json"  # in the folder of a layout that the cache made
LAYOUT_MARK = "@"
"""Stands between a table's name and that of a further layout of it, in the name of the folder."""
Scalar = int | float | str | bool | None


@dataclass(frozen=True, slots=True)
class DistinctCount:
    """How many different values a column has, NULL not counted, by all of its rows.

    Values were counted, or those of them whose hash is below a bound. The second is the number to within a
    standard error. Rows that were added later may have new values or the old ones. Of few values their hashes
    tell, of others the ends then differ.

    Attributes:
        relative_error: the standard error of both ends, relative to them. 0 where all values were counted.
        hashes: of all values, in order, by DuckDB; () of more than KEPT_HASHES.
    """

    least: float
    most: float
    relative_error: float
    hashes: tuple[int, ...] = ()

    @classmethod
    def of_hashes(cls, hashes: Iterable[int]) -> DistinctCount:
        """Return what is known of values with these hashes. No two of few values have the same one.

        >>> DistinctCount.of_hashes([7, 5, 7])
        DistinctCount(least=2, most=2, relative_error=0.0, hashes=(5, 7))
        """
        found = tuple(sorted(set(hashes)))
        return cls(len(found), len(found), 0.0, found if len(found) <= KEPT_HASHES else ())

    def with_rows(self, further: DistinctCount | None) -> DistinctCount | None:
        """Return what is known with further rows, None where nothing is known of these.

        >>> DistinctCount(200, 200, 0.0).with_rows(DistinctCount(30, 30, 0.0))
        DistinctCount(least=200, most=230, relative_error=0.0, hashes=())
        """
        if further is None:
            return None
        if self.are_told_apart and further.are_told_apart:
            return DistinctCount.of_hashes(self.hashes + further.hashes)
        error = max(self.relative_error, further.relative_error)
        return DistinctCount(max(self.least, further.least), self.most + further.most, error)

    @property
    def are_told_apart(self) -> bool:
        """Whether the hashes of all values are there."""
        return len(self.hashes) == self.most

    def without_hashes(self) -> DistinctCount:
        """Return the same where another DuckDB would make other hashes."""
        return replace(self, hashes=())


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """How many different values a column has among the rows with each value of another column.

    Attributes:
        by: the name of the other column. It has few values, whose hashes are kept.
        counted: of its values in the order of their hashes, and of NULL at last.
        share: of the column's values, that were counted: those with a hash below this share of all hashes.
    """

    by: str
    counted: tuple[int, ...]
    share: float


@dataclass(frozen=True, slots=True)
class GroupEnds:
    """Between which ends a column's values lie among the rows with each value of another column.

    Attributes:
        by: the name of the other column. It has few values, whose hashes are kept.
        lowest: the least number for each of its values in the order of their hashes, and for NULL at last.
            None where all are NULL.
    """

    by: str
    lowest: tuple[float | None, ...]
    highest: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Zones:
    """Between which ends columns' values lie, by ranges of one of them (see `layouts/column_statistics.py`).

    Attributes:
        columns: their names, first that of the column with ranges. Its NULLs are the last zone.
        ends: of each zone the least and the greatest value of each column, as text, None where all are NULL.
    """

    columns: tuple[str, ...]
    ends: tuple[tuple[str | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Column:
    """A column and its statistics over the whole table.

    Attributes:
        name: as the source has it.
        minimum: the least value that is not NULL, a number as a number, all else as DuckDB prints it. None
            where it is not known: no values, a type without order, a NaN or an infinity, a very long text.
        maximum: the greatest value, likewise.
        null_count: how many values are NULL.
        distinct_count: about how many distinct values there are.
        byte_count: the compressed bytes in all partitions together.
        inlier_low: a row with a lower value is in the outlier index. None where this column has no part in
            it.
        inlier_high: a row with a higher value is in the outlier index. None likewise.
        is_counted: whether `distinct_count` is exact, as in tables that are read whole where nearly all
            values are different.
        most_unit_rows: the most rows with one value, NULL among them, that a sampling unit has. None where it
            is not known (see `layouts/outliers.py`).
        distinct: what was counted of the distinct values over all rows. None where nothing was.
        by_group: what was counted of them among the rows with each value of some other columns.
        ends_by: the ends of a column of numbers among the rows with each value of some other columns.
    """

    name: str
    type: str
    minimum: Scalar
    maximum: Scalar
    null_count: int
    distinct_count: int
    byte_count: int
    inlier_low: float | None = None
    inlier_high: float | None = None
    is_counted: bool = False
    most_unit_rows: int | None = None
    distinct: DistinctCount | None = None
    by_group: tuple[GroupCounts, ...] = ()
    ends_by: tuple[GroupEnds, ...] = ()

    @property
    def has_outliers(self) -> bool:
        """Whether the rows with values of this column far out are in the table's outlier index."""
        return self.inlier_low is not None

    def without_outliers(self) -> Column:
        """Return the statistics of the rows that this column does not put into the outlier index."""
        low, high = self.inlier_low, self.inlier_high
        assert low is not None
        assert high is not None
        return replace(
            self,
            minimum=max(low, self.minimum) if isinstance(self.minimum, int | float) else low,
            maximum=min(high, self.maximum) if isinstance(self.maximum, int | float) else high,
        )


@dataclass(frozen=True, slots=True)
class QuotientEnds:
    """Between which ends the values of a column lie, each divided by that of another column in its row.

    Attributes:
        by: the name of the other column, in lower case.
        lowest: the lower end, None where it is not known.
    """

    by: str
    lowest: float | None
    highest: float | None


@dataclass(frozen=True, slots=True)
class DerivedColumn(Column):
    """What is known of an output of a derived table. quotients: its values divided by other outputs."""

    quotients: tuple[QuotientEnds, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One Parquet file of a layout.

    Attributes:
        file: its path, relative to the table's folder.
        sha256: of all its bytes.
        checksums: by column, None in a layout of before version 3.
    """

    file: str
    row_count: int
    byte_count: int
    sha256: str
    checksums: Checksums | None = None


@dataclass(frozen=True, slots=True)
class Partition:
    """Rows that are read together: those of one file, and of one more for each append since.

    Attributes:
        files: in order, at least one.
        row_count: the rows of all files.
        unit_count: their sampling units: rows, or distinct cluster keys. Rows of a key may be in several
            files.
        block_rows: the rows in each of BLOCK_COUNT blocks. A static table has none.
    """

    files: tuple[StoredFile, ...]
    row_count: int
    unit_count: int
    block_rows: tuple[int, ...] = ()

    @property
    def byte_count(self) -> int:
        """Return the size of all files."""
        return sum(each.byte_count for each in self.files)

    @property
    def contents(self) -> tuple[str, ...]:
        """Return the SHA-256 of each file: equal contents, equal rows."""
        return tuple(each.sha256 for each in self.files)


@dataclass(frozen=True, slots=True)
class UnitBound:
    """The most that a column sums to in any sampling unit that is not in the index of heavy units.

    Attributes:
        column: its name; "" for the number of rows.
    """

    column: str
    most: float


@dataclass(frozen=True, slots=True)
class HeavyUnits:
    """The sampling units with the largest sums (see `layouts/heavy_units.py`).

    Attributes:
        bounds: of all other units.
        index: a copy of all rows of the heavy units. The partitions have these rows too.
    """

    bounds: tuple[UnitBound, ...]
    index: Partition

    @property
    def name(self) -> str:
        """Return what other layouts know the index by: the SHA-256 of its file."""
        return self.index.contents[0]


@dataclass(frozen=True, slots=True)
class UnitColumn:
    """What a column comes to in any sampling unit that is no outlier.

    Any of a unit's rows, k of them, sum to `middle` · k + d, where d is between −`below` and `above`. These
    are of the rows that the outlier index leaves in the sample, and `…_of_all` are of all rows.

    Attributes:
        middle: about the column's mean. None where nothing is known of its sums.
        above: the most that the parts of values above the middle sum to.
        below: the most that the parts of values below the middle sum to.
        squares: the most that squares of distances from the middle sum to.
        above_of_all: as `above`; None in older layouts, as are the next two.
        below_of_all: as `below`.
        squares_of_all: as `squares`.
    """

    column: str
    most_unit_rows: int | None = None
    middle: float | None = None
    above: float = 0.0
    below: float = 0.0
    squares: float = 0.0
    above_of_all: float | None = None
    below_of_all: float | None = None
    squares_of_all: float | None = None


@dataclass(frozen=True, slots=True)
class OtherUnits:
    """What is known of the sampling units that are no outliers, and how many there are.

    Attributes:
        max_unit_rows: as `Layout` has it, and so are the next two.
        columns: those of which something is known.
        outlier_counts: the outliers in each partition.
        outlier_block_rows: the rows of outliers in each block of each partition.
    """

    max_unit_rows: int
    typical_unit_rows: float
    unit_kurtosis_rows: float
    columns: tuple[UnitColumn, ...]
    outlier_counts: tuple[int, ...]
    outlier_block_rows: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class OutlierUnits:
    """The sampling units with most rows, of which a query may read all rows (see `layouts/outliers.py`).

    Attributes:
        keys: of each, as text. None for NULL.
        rows: a copy of their rows that are not in the outlier index already. None where there are none.
        others: what is known of all other units.
    """

    keys: tuple[str | None, ...]
    rows: Partition | None
    others: OtherUnits


@dataclass(frozen=True, slots=True)
class Companion:
    """A copy of a table's rows of the heavy units of another table that is laid out alike.

    Attributes:
        of: the name of the other table's index of heavy units.
    """

    of: str
    rows: Partition


@dataclass(frozen=True, slots=True)
class TableRead:
    """Files of one table, and the columns that a statement can read in them.

    Attributes:
        directory: the table's folder, absolute.
        files: as the table's manifest names them.
        remote: where the table lies, if that is an object store.
    """

    directory: str
    files: tuple[str, ...]
    columns: tuple[str, ...]
    remote: Remote | None = None


@dataclass(frozen=True, slots=True)
class FirstRead:
    """Partitions of the first part of a layout, which has no manifest yet.

    Attributes:
        files: as the manifest will name them.
        columns: those that a statement can read, as the manifest will name them.
    """

    part: FirstPart
    files: tuple[str, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlainRead:
    """Files that were not laid out, and their state when the session was opened.

    Attributes:
        files: with their states.
        columns: those that a statement can read; None for all.
        row_groups: those that it reads, each as the path of its file and its place there; None for all.
    """

    table: str
    files: tuple[FileState, ...]
    columns: tuple[str, ...] | None = None
    row_groups: tuple[tuple[str, int], ...] | None = None


LaidOutRead: TypeAlias = TableRead | FirstRead
Read: TypeAlias = LaidOutRead | PlainRead


@dataclass(frozen=True, slots=True, repr=False)
class Table:
    """Data that a query may read: columns, rows, and what a statement reads for them.

    Attributes:
        directory: its folder, absolute.
        kind: "sampled"; "static" for a layout that is read whole; "plain" for what was not laid out, and is
            read whole (see `layouts/plain.py`).
        columns: their types and statistics.
        row_count: its rows; about how many there are where `rows_are_counted` is False.
        source: what it was made of, for people.
    """

    table: str
    directory: Path
    kind: Literal["sampled", "static", "plain"]
    columns: tuple[Column, ...]
    row_count: int
    source: str

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.summary}>"

    @property
    def summary(self) -> str:
        """Return one line for people: what the table is called, how large it is and how it is stored."""
        return f"{self.table}: {self.rows_in_words} rows, {self.stored_in_words}, in {self.place}"

    @property
    def stored_in_words(self) -> str:
        """Return how it is stored, for people."""
        return f"{self.kind}, read whole"

    @property
    def place(self) -> str:
        """Return where the table is: its folder, or its address in an object store."""
        return str(self.directory)

    @property
    def rows_are_counted(self) -> bool:
        """Whether `row_count` is exact. For CSV, JSON and the views of DuckDB files it is a guess."""
        return True

    @property
    def rows_in_words(self) -> str:
        """Return how many rows it has, for people. A guess is rounded: about 36,000."""
        return rows_in_words(self.row_count, is_counted=self.rows_are_counted)

    @property
    def is_sampled(self) -> bool:
        """Whether any part of the partitions is a random sample. If not, the table is read whole."""
        return self.kind == "sampled"

    @property
    def is_plain(self) -> bool:
        """Whether it is no layout, but the user's own files as they are."""
        return self.kind == "plain"

    @property
    def is_cached(self) -> bool:
        """Whether the cache made it of what the user has."""
        return (self.directory.parent / RECORD_NAME).is_file()

    @property
    def states(self) -> tuple[FileState, ...]:
        """Return for each file of the user's own its path, size in bytes, and last change in nanoseconds."""
        return ()

    @property
    def lent(self) -> tuple[Lent, ...]:
        """Return what a database must borrow to read the table."""
        return ()

    @property
    def known_rows(self) -> int:
        """Return how many rows the table has, whether they are sampled or not."""
        return self.row_count

    @property
    def from_sql(self) -> str:
        """What stands for the table after FROM, "" where it is read from its files."""
        return ""

    @property
    def has_hive_columns(self) -> bool:
        """Whether the names of its files' folders may be columns, as in year=2013/trips.parquet."""
        return False

    @property
    def hides_nan(self) -> bool:
        """Whether the ends of floats in its files' footers may leave NaN out. DuckDB's own do not."""
        return True

    @property
    def is_united(self) -> bool:
        """Whether its files have other columns, which are united by name."""
        return False

    @property
    def cluster_key(self) -> tuple[str, ...]:
        """Return the columns that make a sampling unit. Empty where the unit is a row."""
        return ()

    @property
    def remote(self) -> Remote | None:
        """Return where a layout lies that is in an object store."""
        return None

    @property
    def folders(self) -> tuple[Path, ...]:
        """Return the folders of ours that statements over it may read."""
        return ()

    @property
    def first_part(self) -> FirstPart | None:
        """Return the first part of the layout that is being made of it, None where there is none."""
        return None

    @property
    def scan_core_seconds(self) -> float:
        """Return about how long one core takes to read it whole in place. 0 for what is laid out."""
        return 0.0

    @property
    def is_soon_measured(self) -> bool:
        """Whether the statistics of its columns are not known, and are found soon."""
        return False

    def measured(self, cursor: Cursor) -> Table:
        """Return the table with the statistics of its columns, which a layout has."""
        return self

    @property
    def file_names(self) -> list[str]:
        """Return the names by which a statement reads all of its files."""
        raise NotImplementedError

    def whole_read(self, names: frozenset[str] | None) -> Read:
        """Return what a statement reads that reads all rows. names: those in it, see `sql/columns.py`."""
        raise NotImplementedError

    def bytes_of(self, columns: Container[str]) -> int:
        """Return the compressed bytes of the columns of these names."""
        return sum(column.byte_count for column in self.columns if column.name in columns)

    def column(self, name: str) -> Column:
        """Return the column of that name, compared without case, as SQL does. Raises KeyError."""
        for column in self.columns:
            if column.name.lower() == name.lower():
                return column
        raise KeyError(name)

    def is_co_clustered_with(self, other: Table) -> bool:
        """Whether both are layouts, and partition i of both holds exactly the same cluster keys."""
        return False


@dataclass(frozen=True, slots=True, repr=False)
class Layout(Table):
    """A table on disk. Sampled: any prefix of its partitions is a uniform random sample of sampling units.

    Attributes:
        partitions: in order.
        unit_count: its sampling units.
        cluster_key: the columns that make a sampling unit. Empty where the unit is a row.
        seed: of the assignment to partitions.
        hash_scheme: how the unit is hashed.
        hash_probe: what this scheme makes of fixed values. Only layouts with equal probes are co-clustered.
        max_unit_rows: the rows of the largest sampling unit.
        created_with: the versions that made it.
        outliers: the files of the outlier index, a copy of rows that the partitions have too. None where no
            column is skewed.
        outlier_units: the units with most rows, and what is known of the others. None where units are rows.
        heavy: the sampling units with the largest sums. None where units are rows, or too few are known.
        companions: the rows of heavy units of other tables.
        typical_unit_rows: the rows of the unit that a row belongs to, on average. A layout that does not say
            has 1, which makes the largest unit a likely one.
        unit_kurtosis_rows: how unlike the sizes m of the N rows' units are, N·Σm⁴/(Σm²)²: the rows of a unit
            if all are alike, and more else. None where it is not known.
        batches: the names that appends were given, in order. No batch of such a name is appended again.
        source_files: the files that its rows came from: path, size in bytes, time of the last change in
            nanoseconds. Empty where they came from elsewhere.
        remote: where it lies, if that is an object store; then `directory` has copies of what was read of it.
        heads: a tenth of the units of each of the first partitions, in its first file. Small ones have none.
        zones: ends of columns that are close together in ranges of another one. () of small tables.

    >>> trips = CATALOG.table("trips")
    >>> trips.kind, trips.row_count, [column.name for column in trips.columns][:2]
    ('sampled', 12800000, ['driver', 'zone'])
    """

    partitions: tuple[Partition, ...] = ()
    unit_count: int = 0
    cluster_key: tuple[str, ...] = ()
    seed: int = 0
    hash_scheme: str = ""
    hash_probe: str = ""
    max_unit_rows: int = 1
    created_with: str = ""
    outliers: Partition | None = None
    typical_unit_rows: float = 1.0
    batches: tuple[str, ...] = ()
    source_files: tuple[tuple[str, int, int], ...] = ()
    remote: Remote | None = None
    heavy: HeavyUnits | None = None
    companions: tuple[Companion, ...] = ()
    unit_kurtosis_rows: float | None = None
    outlier_units: OutlierUnits | None = None
    heads: tuple[Partition, ...] = ()
    zones: tuple[Zones, ...] = ()

    @property
    def stored_in_words(self) -> str:
        """Return how it is stored, for people."""
        count = len(self.partitions)
        words = (
            f"{count} partition{'s' if count > 1 else ''}" if self.is_sampled else f"{self.kind}, read whole"
        )
        if self.cluster_key:
            words += f", clustered by {', '.join(self.cluster_key)} ({self.unit_count:,} values)"
        return words

    @property
    def place(self) -> str:
        """Return where the table is: its folder, or its address in an object store."""
        return str(self.directory if self.remote is None else self.remote.address)

    @property
    def is_compact(self) -> bool:
        """Whether no partition has more than one file beside its head."""
        return sum(len(each.files) for each in self.partitions) == len(self.partitions) + len(self.heads)

    @property
    def folders(self) -> tuple[Path, ...]:
        """Return the folder of the layout."""
        return (self.directory,)

    @property
    def file_names(self) -> list[str]:
        """Return the names by which a statement reads all of its files."""
        return list(map(str, self.paths))

    def read(self, columns: tuple[str, ...], files: Iterable[StoredFile]) -> LaidOutRead:
        """Return what a statement reads that reads these columns of some of its files."""
        return TableRead(str(self.directory), tuple(each.file for each in files), columns, self.remote)

    def whole_read(self, names: frozenset[str] | None) -> Read:
        """Return what a statement reads that reads all rows. names: those in it, see `sql/columns.py`."""
        return self.read(columns_named(self, names), self.files)

    @property
    def has_row_units(self) -> bool:
        """Whether each row is a sampling unit of its own."""
        return not self.cluster_key

    @property
    def files(self) -> tuple[StoredFile, ...]:
        """Return the files of all partitions, in order."""
        return self.files_of(range(len(self.partitions)))

    def files_of(self, partitions: Iterable[int]) -> tuple[StoredFile, ...]:
        """Return the files of some partitions."""
        return tuple(each for i in partitions for each in self.partitions[i].files)

    @property
    def all_files(self) -> tuple[StoredFile, ...]:
        """Return the files of all partitions, and of the copies of some of their rows."""
        return (*self.files, *(each for rows in self.copies for each in rows.files))

    @property
    def copies(self) -> tuple[Partition, ...]:
        """Return the copies of rows that the partitions have too: the indexes, and companions of others'."""
        heavy = self.heavy.index if self.heavy else None
        units = self.outlier_units.rows if self.outlier_units else None
        return tuple(filter(None, (self.outliers, units, heavy, *(each.rows for each in self.companions))))

    def rows_of_heavy(self, name: str) -> Partition | None:
        """Return the rows of the units in an index of heavy units, of this table or of another one.

        It is None where there is no copy of them.
        """
        if self.heavy is not None and self.heavy.name == name:
            return self.heavy.index
        return next((each.rows for each in self.companions if each.of == name), None)

    @property
    def paths(self) -> tuple[Path, ...]:
        """Return the absolute path of each file of the partitions, in order."""
        return tuple(self.directory / each.file for each in self.files)

    def paths_of(self, partition: int) -> tuple[Path, ...]:
        """Return the absolute paths of one partition's files."""
        return tuple(self.directory / each.file for each in self.files_of([partition]))

    @property
    def outlier_files(self) -> tuple[StoredFile, ...]:
        """Return the files of the outlier index: of rows, and of the other rows of outlier units."""
        units = self.outlier_units.rows if self.outlier_units else None
        return tuple(each for rows in (self.outliers, units) if rows for each in rows.files)

    def without_outlier_units(self) -> Layout:
        """Return what is left where the rows of outlier units are counted apart: it measures, like this one.

        Its partitions have the same files.
        """
        assert self.outlier_units is not None
        others = self.outlier_units.others
        partitions = tuple(
            replace(
                each,
                row_count=each.row_count - sum(rows),
                unit_count=each.unit_count - count,
                block_rows=tuple(all_ - out for all_, out in zip(each.block_rows, rows, strict=True)),
            )
            for each, rows, count in zip(
                self.partitions, others.outlier_block_rows, others.outlier_counts, strict=True
            )
        )
        return replace(
            self,
            partitions=partitions,
            row_count=sum(each.row_count for each in partitions),
            unit_count=sum(each.unit_count for each in partitions),
            max_unit_rows=others.max_unit_rows,
            typical_unit_rows=others.typical_unit_rows,
            unit_kurtosis_rows=others.unit_kurtosis_rows,
        )

    def is_co_clustered_with(self, other: Table) -> bool:
        """Whether partition i of both holds exactly the same cluster keys."""
        return (
            isinstance(other, Layout)
            and self.is_sampled
            and other.is_sampled
            and bool(self.cluster_key)
            and len(self.cluster_key) == len(other.cluster_key)
            and len(self.partitions) == len(other.partitions)
            and self.seed == other.seed
            and (self.hash_scheme, self.hash_probe) == (other.hash_scheme, other.hash_probe)
            and [key_family(self.column(k).type) for k in self.cluster_key]
            == [key_family(other.column(k).type) for k in other.cluster_key]
        )


def rows_in_words(row_count: int, *, is_counted: bool) -> str:
    """Return a number of rows for people. A guess is rounded.

    >>> rows_in_words(36_412, is_counted=True), rows_in_words(36_412, is_counted=False)
    ('36,412', 'about 36,000')
    """
    return f"{row_count:,}" if is_counted else f"about {float(f'{row_count:.2g}'):,.0f}"


@dataclass(frozen=True, slots=True, repr=False)
class FirstPart(Layout):
    """A layout whose `row_count` and columns are those of the whole table, while `partitions` are the first.

    A query that samples it never reaches the exact answer. It must not be read as if it were the table.

    is_made: whether the other partitions are there too. If not, no manifest names it yet.
    """

    is_made: bool = False

    @property
    def file_names(self) -> list[str]:
        raise AssertionError(f"the first part of {self.table} is not the table")

    def read(self, columns: tuple[str, ...], files: Iterable[StoredFile]) -> LaidOutRead:
        known = Layout.read(self, columns, files)
        return known if self.is_made else FirstRead(self, tuple(each.file for each in files), columns)

    def whole_read(self, names: frozenset[str] | None) -> Read:
        raise AssertionError(f"the first part of {self.table} is not the table")


def first_part_of(layout: Layout, count: int) -> FirstPart:
    """Return the first partitions of a layout, without its copies of rows, such as outliers."""
    known = {field.name: getattr(layout, field.name) for field in fields(Layout)}
    copies = {"outliers": None, "outlier_units": None, "heavy": None, "companions": (), "heads": ()}
    return FirstPart(**(known | copies | {"partitions": layout.partitions[:count], "is_made": True}))


def columns_named(layout: Table, names: frozenset[str] | None) -> tuple[str, ...]:
    """Return the table's columns that a query with these names can read. None stands for all names."""
    return tuple(c.name for c in layout.columns if names is None or c.name.lower() in names)


def plain_tables(reads: Iterable[Read]) -> tuple[str, ...]:
    """Return the names of the plain tables among what is read, each once."""
    return tuple(dict.fromkeys(read.table for read in reads if isinstance(read, PlainRead)))
