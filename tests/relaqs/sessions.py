"""What tests do with sessions: make them, and ask them for exact answers."""

from __future__ import annotations

from collections.abc import Callable

import relaqs
from tests.rows import rows_of

Connect = Callable[..., relaqs.Session]


def exact_rows(db: relaqs.Session, sql: str) -> list[tuple[object, ...]]:
    """Return the rows of an answer, which must be exact."""
    found = db.online_sql(sql).result()
    assert found.is_exact
    return rows_of(found.estimate)
