"""The DuckDB databases of one session: one for tasks, one for whole queries, one for merged states.

A user with memory of their own has three more.

The one for merged states takes 20 ms to open, and is opened for the first query that has a state.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import gettempdir

from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import CivilTime, Cursor, Database, DatabaseConfig
from relaqs_engine.errors import BrokenDatabaseError

from relaqs.executors import duck_process as worker
from relaqs.jobs.executor import user_name
from relaqs.queries.options import AskingUser


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


_STATE_SHARE = 0.25  # of the memory limit is for merged states; tasks have the rest, whole queries have all


@dataclass(frozen=True, slots=True)
class QueryDatabases:
    """What one query runs on.

    Attributes:
        tasks: the database that reads partitions.
        whole: the database of queries that run as a whole.
        states: the database of merged states.
    """

    tasks: DatabaseConfig
    whole: DatabaseConfig
    states: StateDatabase

    def state_cursor(self) -> Cursor:
        """Return a new cursor, for the state of the query."""
        return self.states.cursor(self.tasks.civil_time)


class Databases:
    """What the queries of a session run on.

    Args:
        memory_limit_bytes: of all together.
        exact_threads: of a query that runs as a whole.
        result_limit_bytes: of one answer; None for no limit.
        owner: the user whom they belong to, "" for all others.

    Attributes:
        tasks: the database that reads partitions.
        whole: the database of queries that run as a whole.
        states: the database of merged states.
        state_bytes: what merged states may take.
    """

    def __init__(
        self, memory_limit_bytes: int, exact_threads: int, result_limit_bytes: int | None, owner: str = ""
    ) -> None:
        self.state_bytes = int(memory_limit_bytes * _STATE_SHARE)
        self.tasks = replace(
            closed_config(memory_limit_bytes - self.state_bytes, result_limit_bytes), owner=owner
        )
        self.whole = replace(
            self.tasks,
            memory_limit_bytes=memory_limit_bytes,
            threads=exact_threads,
            aggregates_below_joins=True,
        )
        self.states = StateDatabase(closed_config(self.state_bytes, result_limit_bytes))
        self._opened: set[DatabaseConfig] = set()
        self._catalog: Catalog | None = None
        self._changing = threading.Lock()
        self._of_users: dict[tuple[str, int], Databases] = {}

    def of(self, asker: AskingUser, civil_time: CivilTime | None) -> QueryDatabases:
        """Return what a query of the asker runs on: databases of their own if they have memory of their own.

        civil_time: by which the query reads and shows moments.
        """
        own = self._of(asker)
        configs = own.tasks, own._whole_within(asker.cores_most)
        tasks, whole = (replace(config, civil_time=civil_time) for config in configs)
        return QueryDatabases(tasks, whole, own.states)

    def _whole_within(self, cores_most: float) -> DatabaseConfig:
        """Return the database of queries that run as a whole on no more cores. One core needs no other."""
        if cores_most >= self.whole.threads:
            return self.whole
        if cores_most < 2:
            return self.tasks
        whole = replace(self.whole, threads=int(cores_most))
        self._opened.add(whole)
        return whole

    def _of(self, asker: AskingUser) -> Databases:
        if asker.memory_bytes is None:
            return self
        with self._changing:
            key = asker.name, asker.memory_bytes
            if key not in self._of_users:
                own = Databases(
                    asker.memory_bytes, self.whole.threads, self.tasks.result_limit_bytes, asker.name
                )
                if self._catalog is not None:
                    own.read(self._catalog)
                self._of_users[key] = own
            return self._of_users[key]

    def read(self, catalog: Catalog) -> None:
        """Let them read these tables too. What they could read before stays."""
        with self._changing:
            self._catalog = catalog
            of_users = list(self._of_users.values())
        for each in of_users:
            each.read(catalog)
        self.tasks, self.whole = catalog.readable_by(self.tasks), catalog.readable_by(self.whole)
        self._opened |= {self.tasks, self.whole}

    def close(self, *, has_states_in_use: bool) -> None:
        """Close what is open of them in this process.

        A database that folds still read cannot be closed. It stays open until the process ends.
        """
        for each in self._of_users.values():
            each.close(has_states_in_use=has_states_in_use)
        for config in self._opened:
            worker.close_database(config)
        if not has_states_in_use:
            self.states.close()
