"""Planning asks DuckDB about each text once, however many ways of cutting a query are tried."""

from __future__ import annotations

from collections import Counter

import pytest
from relaqs_engine.duck import Cursor
from relaqs_engine.planning.planner import plan_query
from relaqs_engine.sql.binder import Binder

from tests.engine.example import CATALOG

TOTALS = "SELECT zone, sum(fare) AS fare FROM trips GROUP BY zone"
MEMBERS = "SELECT zone FROM trips WHERE km > 1 INTERSECT SELECT zone FROM trips WHERE km > 2"
OF_MEMBERS = f"SELECT sum(fare) AS fare FROM trips WHERE zone IN ({MEMBERS})"


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT * FROM ({OF_MEMBERS}) UNION ALL SELECT avg(fare) FROM ({TOTALS})",
        f"{OF_MEMBERS} HAVING sum(fare) > (SELECT avg(fare) FROM ({TOTALS}))",
    ],
)
def test_no_text_is_bound_twice(sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bound: Counter[str] = Counter()
    describe = Cursor.describe

    def counted(cursor: Cursor, text: str) -> list[tuple[str, str]]:
        bound[text] += 1
        return describe(cursor, text)

    monkeypatch.setattr(Cursor, "describe", counted)
    plan_query(sql, CATALOG, Binder(CATALOG))
    assert max(bound.values()) == 1
