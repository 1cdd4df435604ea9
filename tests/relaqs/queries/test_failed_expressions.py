"""An expression that has no value for some row: its error says where it stands in what the user wrote."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import relaqs

PLACE = "¦"
"""Stands in a statement before the place that its error points at."""

STATEMENTS = [
    "SELECT sum(size¦::INT) AS total FROM parts",
    "SELECT kind,\n  avg(¦CAST(size AS DOUBLE)) FROM parts GROUP BY kind",
    "SELECT 'é漢', sum(kg), count(*) FILTER (WHERE p.size¦::INTEGER > 3) FROM parts AS p",
    "SELECT sum(kg) FROM parts WHERE ¦size = 5",
    "SELECT count(*) FROM parts WHERE kg > (SELECT avg(size¦::INT) FROM parts)",
    "SELECT kind, sum(kg) OVER (ORDER BY size¦::INT) FROM parts",
    "SELECT size¦::INT AS n FROM parts ORDER BY n LIMIT 3",
    "WITH few AS (SELECT size FROM parts) SELECT max(few.size¦::INT) FROM few",
    "SELECT sum(kg) FROM parts WHERE made >= ¦DATE '2020-13-01'",
    "SELECT sum(kg) + ¦CAST('x' AS INT) FROM parts",
    "SELECT sum(kg) FROM parts WHERE kind = $kind AND size¦::INT > $least",
]


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, relaqs.Session]]:
    """Parts, one of which has a size that is no number: laid out, and as they lie."""
    folder = tmp_path_factory.mktemp("parts")
    rows = 400
    parts = pa.table(
        {
            "kind": [f"kind {i % 3}" for i in range(rows)],
            "size": ["many" if i == 321 else str(i % 40) for i in range(rows)],
            "kg": [float(i % 7) for i in range(rows)],
            "made": pa.array(range(rows), pa.int32()).cast(pa.date32()),
        }
    )
    pq.write_table(parts, folder / "parts.parquet")
    relaqs.shuffle(parts, folder / "warehouse" / "parts", partitions=4)
    laid_out = relaqs.connect(folder / "warehouse", threads=1)
    as_they_lie = relaqs.connect(folder / "parts.parquet", threads=1, background_layouts=False)
    with laid_out, as_they_lie:
        yield {"laid out": laid_out, "as they lie": as_they_lie}


@pytest.mark.parametrize("marked", STATEMENTS)
@pytest.mark.parametrize("kind", ["laid out", "as they lie"])
def test_the_error_points_at_the_expression(
    sessions: dict[str, relaqs.Session], kind: str, marked: str
) -> None:
    sql, begin = marked.replace(PLACE, ""), marked.index(PLACE)
    params = {"kind": "kind 0", "least": 3} if "$" in sql else None
    with pytest.raises(relaqs.ExpressionError, match="TRY_CAST gives NULL") as failed:
        sessions[kind].online_sql(sql, params=params).result()
    line, column = sql.count("\n", 0, begin) + 1, begin - sql.rfind("\n", 0, begin)
    assert failed.value.position == (line, column)
    assert str(failed.value).endswith(f"; at line {line}, column {column}")
    assert str(pickle.loads(pickle.dumps(failed.value))) == str(failed.value)
