"""The database of the merged states of a session's queries, opened for the first of them."""

from __future__ import annotations

import threading
from pathlib import Path
from tempfile import gettempdir

from relaqs_engine.duck import CivilTime, Cursor, Database, DatabaseConfig
from relaqs_engine.errors import BrokenDatabaseError

from relaqs.jobs.executor import user_name


class StateDatabase:
    """Gives cursors of one database. It takes 20 ms to open, so queries without a state do without."""

    def __init__(self, config: DatabaseConfig) -> None:
        self._config = config
        self._opening = threading.Lock()
        self._database: Database | None = None

    def cursor(self, civil_time: CivilTime | None = None) -> Cursor:
        """Return a new cursor, for the state of one query. civil_time: of the query."""
        with self._opening:
            self._database = self._database or Database(self._config)
            try:
                cursor = self._database.cursor(civil_time)
                cursor.rows("SELECT 1")
            except BrokenDatabaseError:  # DuckDB met a fault in the state of another query
                self._database = Database(self._config)
                cursor = self._database.cursor(civil_time)
            return cursor

    def close(self) -> None:
        """Close what is open. The second call does nothing."""
        with self._opening:
            if self._database is not None:
                self._database.close()


def closed_config(memory_limit_bytes: int, result_limit_bytes: int | None) -> DatabaseConfig:
    """Return the configuration of a database that may read nothing yet."""
    spill = Path(gettempdir()) / f"relaqs-spill-{user_name()}"  # DuckDB keeps processes in it apart
    return DatabaseConfig((), memory_limit_bytes, str(spill), result_limit_bytes=result_limit_bytes)
