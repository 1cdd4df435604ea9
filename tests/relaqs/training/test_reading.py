"""What SELECTs training reads, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from relaqs import DataError, RelaqsError, Session, SqlError, UnsupportedError, add_static, connect, shuffle
from relaqs.training import Profile, Rows
from relaqs.training.protocol import Iteration
from relaqs.training.rows import Sums

ROWS = 200


class Collect:
    """A training job that learns the rows themselves, sorted: what was read, whatever the partitions."""

    def __init__(self, sql: str, target: str | None = None) -> None:
        self.sql, self.target = sql, target

    def begin(self, profile: Profile) -> Iteration:
        return Iteration(None, lambda model, sums: (0.0, sums, False))

    def partial(self, model: object, rows: Rows) -> Sums:
        table = np.column_stack([rows.features, *([] if rows.target is None else [rows.target])])
        return np.array(len(rows)), table.sum(axis=0), (table**2).sum(axis=0)

    def estimator(self, profile: Profile, model: Sums) -> tuple[tuple[str, ...], Sums]:
        return profile.names, model


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A table of numbers, where some are NULL or NaN, with text, and a static table of three names."""
    warehouse = tmp_path_factory.mktemp("reading")
    number = np.arange(ROWS)
    table = {
        "n": number,
        "half": pa.array(number / 2).cast(pa.decimal128(10, 1)),
        "is_even": number % 2 == 0,
        "third": number % 3,
        "word": [f"w{i % 3}" for i in number],
        "gap": [None if i == 7 else float(i) for i in number],
        "hole": [float("nan") if i == 7 else float(i) for i in number],
        "day": pa.array(number.astype(np.int32)).cast(pa.date32()),
    }
    shuffle(pa.table(table), warehouse / "t", partitions=5)
    add_static(pa.table({"k": [0, 1], "v": [10.0, 20.0]}), warehouse / "s")
    with connect(warehouse, threads=2, views={"evens": "SELECT n, half FROM t WHERE is_even"}) as session:
        yield session


def read(db: Session, sql: str, target: str | None = None) -> tuple[tuple[str, ...], Sums]:
    found: tuple[tuple[str, ...], Sums] = db.train(Collect(sql, target), max_steps=2).result()
    return found


def test_numbers_of_every_type_are_read_as_doubles(db: Session) -> None:
    names, (count, sums, squares) = read(db, "SELECT n, half, is_even, n + half AS more FROM t")
    n = np.arange(ROWS, dtype=np.float64)
    expected = np.column_stack([n, n / 2, n % 2 == 0, 1.5 * n])
    assert names == ("n", "half", "is_even", "more")
    assert count == ROWS
    assert sums == pytest.approx(expected.sum(axis=0))
    assert squares == pytest.approx((expected**2).sum(axis=0))


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT n FROM t WHERE n < 10", [10, 45]),
        ("SELECT n, v FROM t JOIN s ON third = k", [134, 13_333 + 1, 2010]),
        ("SELECT n FROM t WHERE third IN (SELECT k FROM s WHERE v > 10)", [67, 6700]),
        ("SELECT n FROM evens", [100, 9900]),
        ("WITH few AS (SELECT n FROM t WHERE n < 3) SELECT n + 1 AS m FROM few", [3, 6]),
        ("SELECT n FROM t ORDER BY n", [200, 19_900]),
    ],
)
def test_selects_of_rows(db: Session, sql: str, expected: list[float]) -> None:
    _, (count, sums, _) = read(db, sql)
    if "JOIN" in sql:
        joined = [(n, [10.0, 20.0][n % 3]) for n in range(ROWS) if n % 3 < 2]
        expected = [len(joined), *np.sum(joined, axis=0)]
    assert [count, *sums] == pytest.approx(expected)


def test_the_target_is_no_feature_wherever_it_stands(db: Session) -> None:
    for sql in ("SELECT third, n, half FROM t", "SELECT n, THIRD, half FROM t"):
        names, (_, sums, _) = read(db, sql, target="Third")
        assert names == ("n", "half")
        assert sums == pytest.approx([19_900, 9950, sum(i % 3 for i in range(ROWS))])


@pytest.mark.parametrize(
    ("sql", "target", "error", "said"),
    [
        ("SELECT nn FROM t", None, SqlError, "nn"),
        ("SELECT n FROM t", "y", SqlError, "target 'y' is no column of the SELECT, which has n"),
        ("SELECT n, n FROM t", "n", SqlError, "several columns"),
        ("SELECT n FROM t", "n", SqlError, "no column to learn from"),
        ("SELECT n, word FROM t", "n", SqlError, "'word' is VARCHAR; features are numbers"),
        ("SELECT n, day FROM t", "n", SqlError, "'day' is DATE"),
        ("SELECT sum(n) FROM t", None, UnsupportedError, "it aggregates"),
        ("SELECT third, count(*) FROM t GROUP BY third", None, UnsupportedError, "it aggregates"),
        ("SELECT k FROM s", None, UnsupportedError, "no table of its FROM is sampled"),
        ("SELECT n, row_number() OVER () AS r FROM t", None, UnsupportedError, "window"),
        ("SELECT n FROM t LIMIT 5", None, UnsupportedError, "LIMIT chooses among all rows"),
        ("SELECT n FROM read_parquet('x')", None, SqlError, "read_parquet is not allowed"),
    ],
)
def test_selects_that_are_refused(
    db: Session, sql: str, target: str | None, error: type[RelaqsError], said: str
) -> None:
    with pytest.raises(error, match=said):
        db.train(Collect(sql, target))


@pytest.mark.parametrize(
    ("sql", "target", "said"),
    [
        ("SELECT n, gap FROM t", None, "'gap' is NULL in 1 rows"),
        ("SELECT n, gap FROM t", "gap", "'gap' is NULL in 1 rows"),
        ("SELECT n, hole FROM t", None, "'hole' is NaN or infinite"),
        ("SELECT n, hole FROM t", "hole", "'hole' is NaN or infinite"),
    ],
)
def test_holes_in_the_data_are_named(db: Session, sql: str, target: str | None, said: str) -> None:
    with pytest.raises(DataError, match=said):
        db.train(Collect(sql, target)).result()


def test_rows_cannot_be_written_to(db: Session) -> None:
    class Careless(Collect):
        def partial(self, model: object, rows: Rows) -> Sums:
            rows.features[:] = 0.0
            return ()

    with pytest.raises(ValueError, match="read-only"):
        db.train(Careless("SELECT n, half FROM t")).result()


def test_jobs_of_one_select_with_other_columns_as_target_do_not_share_rows(db: Session) -> None:
    """What is kept of a SELECT's rows for one job is not taken for those of another."""
    sql = "SELECT n + 1 AS n, third AS t, half AS y FROM t"  # y is read as a DOUBLE, target or not
    for first, then in (("y", None), (None, "y")):
        columns = f"{sql} WHERE n < {100 + (first is None)}"
        for target in (first, then):
            [batch] = db._readable(columns, target).batches(ROWS, 0, "numpy", "shared")
            shapes = [each.shape[1:] for each in (batch if isinstance(batch, tuple) else (batch,))]
            assert shapes == ([(3,)] if target is None else [(2,), ()])
    for renamed in ("word", "other"):
        [table] = db._readable(f"SELECT n, word AS {renamed} FROM t", None).batches(
            ROWS, 0, "arrow", "shared"
        )
        assert table.column_names == ["n", renamed]


def test_a_table_that_is_laid_out_again_is_read_again(tmp_path: Path) -> None:
    for value in (1.0, 2.0):
        shuffle(pa.table({"x": [value] * 10}), tmp_path / "t", partitions=2, force=True)
        with connect(tmp_path, threads=1) as db:
            _, (count, sums, _) = read(db, "SELECT x FROM t")
        assert [int(count), *sums] == [10, 10 * value]
