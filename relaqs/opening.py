"""The way in: from folders, files and addresses to a session."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import CivilTime, ReadingDatabase
from relaqs_engine.errors import naming
from relaqs_engine.layouts.cache import Cache, CacheUse, Opening
from relaqs_engine.layouts.sources import TableSource, found_tables, is_warehouse
from relaqs_engine.sql.parse import check_views, with_tables_of_paths
from relaqs_engine.sql.read import Effort, WrittenSql
from relaqs_engine.sql.statements import with_tables_shown

from relaqs.arguments import ArgumentError, check_count, check_seconds, check_zone
from relaqs.executors import Executor, open_executor
from relaqs.memory import memory_bytes, result_bytes, usual_memory_bytes
from relaqs.policies import DEFAULT_POLICY
from relaqs.queries import tables as open_tables
from relaqs.queries.online_query import OnlineQuery
from relaqs.session import Session
from relaqs.sharing.view import Policy

if TYPE_CHECKING:
    from distributed import Client, Security

    from relaqs.sharing.gangs import SlotPolicy


FOLLOW_SECONDS = 5.0  # between two looks of long-running programs: `connect(follow=…)`


def connect(
    data: TableSource | None = None,
    *,
    tables: Mapping[str, TableSource] | None = None,
    cluster: str | Client | None = None,
    views: Mapping[str, str] | None = None,
    threads: int | None = None,
    memory_limit: int | str | None = None,
    cache_directory: str | Path | None = None,
    policy: str | Policy = DEFAULT_POLICY,
    slot_policy: str | SlotPolicy | None = None,
    result_limit: int | str | None = None,
    security: Security | Mapping[str, Any] | None = None,
    background_layouts: bool = True,
    exact_below_seconds: float | None = None,
    timezone: str | None = None,
    follow: float | None = None,
) -> Session:
    """Return a session over the tables of a warehouse folder, or over plain files, read where they lie.

    Plain files are read whole, as DuckDB would, and there is no estimate before the end. Where the cache has
    a layout of the files as they are now, it is read instead, and gives estimates. A large table that is
    asked about again is laid out meanwhile. On a cluster plain files are laid out into the cache first.

    Args:
        data: a folder of layouts; or Parquet, CSV, JSON or DuckDB files, Delta or Iceberg tables (a path, a
            pattern, a list, a folder of such, or a call such as "read_csv('f.csv', delim=';')"), each a table
            by its own name; or a DataFrame, Arrow data or a DuckDB relation, which is called `data`.
        tables: table name → any of these. A list of paths is one table.
        cluster: a Dask scheduler's address, or a Dask client. Without it queries run on threads of this
            process.
        views: view name → SELECT, over tables and the views before it.
        threads: how many threads of this process answer queries. By default one for each core.
        memory_limit: of each process that runs queries, in bytes or as "4GB". By default it is half of this
            machine's memory, and a quarter with a cluster.
        cache_directory: where layouts and copies are. By default $RELAQS_CACHE or ~/.cache/relaqs.
        policy: who gets how many of the cores: a name, such as "relaqs", "fair" or "max_sum", or an object
            with `plan` (see `relaqs.policies`).
        slot_policy: on a cluster, which of the models in training by mini-batches get which slots: a name,
            such as "ones" or "equal_slots", or an object with `plan`. By default what other sessions there
            have chosen, and else "completion_rate".
        result_limit: what an answer may take, written as memory_limit. A query that goes beyond it fails. By
            default there is no limit.
        security: for a scheduler's address that begins with tls://, a `distributed.Security` or its
            arguments: tls_ca_file, tls_client_cert, tls_client_key. By default what Dask's configuration
            says.
        background_layouts: whether plain tables that take more than 0.3 seconds to read are laid out into the
            cache when they are asked about a second time. Later queries then have estimates.
        exact_below_seconds: a query that one core is predicted to read in less time runs once, exactly,
            without estimates before. On small tables these cost several times as much as the answer. A query
            that asks for a target, a timeout, batches or other steps has estimates all the same. The default
            is 0.3 where the cache has a layout of your files, which must make no query slower. For all other
            tables it is 0.1, of a million rows or more: of fewer rows, estimates cost little. Where the exact
            answer comes within 0.3 s there are a few of them. 0, which is the default on a cluster, goes on
            with estimates to the end. What takes twice as long as was predicted has estimates after all.
        timezone: by which moments are read and shown, such as "Europe/Paris", in this process and on all
            workers of a cluster. By default it is this process's own, as DuckDB takes it.
        follow: how many seconds lie between two looks at whether files have changed. Later queries are about
            what is there then, as after `Session.refresh`. By default a session stays with the rows that it
            opened. `relaqs serve`, `dashboard` and `mcp` look every 5 seconds.

    Raises:
        LayoutError: a table cannot be used.
        DataError: a table cannot be read.
        ClusterError: the cluster cannot be used.
        MissingPackageError: a cluster is given, and Dask is not installed.
        ArgumentError: another argument is not accepted.
        PolicyError: there is no such policy.

    >>> import duckdb, relaqs
    >>> duckdb.sql("SELECT range AS x FROM range(1000)").write_csv("numbers.csv")
    >>> with relaqs.connect("numbers.csv", cache_directory="cache", policy="fair") as db:
    ...     print(db.online_sql("SELECT max(x) AS most FROM numbers").result().estimate)
    pyarrow.Table
    most: int64
    ----
    most: [[999]]
    """
    if follow is not None:
        check_seconds("follow", follow)
    if exact_below_seconds not in (None, 0):
        check_seconds("exact_below_seconds", exact_below_seconds)
    elif cluster is not None:
        exact_below_seconds = 0.0
    usual = usual_memory_bytes(on_cluster=cluster is not None)
    limit = usual if memory_limit is None else memory_bytes(memory_limit)
    cores = None if threads is None else check_count("threads", threads)
    civil_time = None if timezone is None else CivilTime(check_zone("timezone", timezone))
    with naming("opening the tables"), ExitStack() as undo:
        use = CacheUse(Cache(cache_directory))
        undo.callback(use.release)
        sources = _sources(data, tables or {}, use.cache.directory)
        executor = open_executor(
            cluster, cores=cores, policy=policy, slot_policy=slot_policy, security=security
        )
        undo.callback(executor.close)
        catalog = _open_catalog(sources, use, None if cluster is None else executor, civil_time)
        views = _with_own_names(views or {}, use.named_paths())
        check_views(with_tables_shown(views, catalog.tables), catalog.tables, catalog.left_out)
        session = Session(
            catalog,
            views,
            executor,
            memory_limit_bytes=limit,
            exact_threads=executor.capacity if cluster is None else 1,  # a task of a cluster is one core
            result_limit_bytes=None if result_limit is None else result_bytes(result_limit),
            background_layouts=background_layouts,
            exact_below_seconds=exact_below_seconds,
            cache_use=use,
            civil_time=civil_time,
            follow_seconds=follow,
        )
        undo.pop_all()
    if "opentelemetry.trace" in sys.modules:  # this process draws spans
        from relaqs.metrics.spans import Spans

        session.witnesses.append(Spans())
    return session


def _with_own_names(
    views: Mapping[str, str], paths: Mapping[str | tuple[str, ...], str]
) -> Mapping[str, str]:
    """Return the views with their tables' names here, where they name schemas of DuckDB files."""
    if not any(isinstance(each, tuple) for each in paths):
        return views
    return {
        name: with_tables_of_paths(WrittenSql(sql), paths.get, Effort()).sql for name, sql in views.items()
    }


def online_sql(sql: str, data: TableSource | None = None, **options: Any) -> OnlineQuery:
    """Start answering one SELECT over `data`, and return its handle at once.

    The session behind it closes when the query is no longer referred to.

    Args:
        sql: the SELECT.
        data: as `connect` takes it.
        options: the other arguments of `connect` and of `Session.online_sql`.

    >>> relaqs.online_sql("SELECT sum(x) AS total FROM numbers", "data", threads=1).result().is_exact
    True
    """
    opening = {name: options.pop(name) for name in signature(connect).parameters.keys() & options.keys()}
    return connect(data, **opening).online_sql(sql, **options)


@dataclass(frozen=True, slots=True)
class _Sources:
    """What the user named.

    Attributes:
        laid_out: tables of a warehouse folder.
        found: others that were found in a folder, by their names. Those that do not open are left out.
        named: others that the user named.
    """

    laid_out: Catalog
    found: Mapping[str, TableSource]
    named: Mapping[str, TableSource]


def _sources(data: TableSource | None, tables: Mapping[str, TableSource], cache_directory: Path) -> _Sources:
    if data is None and not tables:
        raise ArgumentError('there are no tables; give a warehouse folder, or tables={"name": "files"}')
    if is_warehouse(data):
        return _Sources(Catalog.open(data, cache_directory, leaves_out=True), {}, tables)
    found = {} if data is None else found_tables(data)
    if not isinstance(data, str | os.PathLike):
        return _Sources(Catalog(()), {}, {**found, **tables})
    others = {name: source for name, source in found.items() if name not in tables}
    return _Sources(Catalog(()), others, tables)


def _open_catalog(
    sources: _Sources, use: CacheUse, cluster: Executor | None, civil_time: CivilTime | None
) -> Catalog:
    """Return the tables. On a cluster those without a layout are laid out now, by its workers."""
    how = Opening(use, open_tables.announce, reading=ReadingDatabase(civil_time))
    with closing(how.reading), _opener(how, cluster) as opened:
        found, named = opened(sources.found, leaves_out=True), opened(sources.named)
        layouts = (*sources.laid_out.layouts, *found.layouts, *named.layouts)
        left_out = (*sources.laid_out.left_out, *found.left_out)
        for name, error in left_out:
            open_tables.announce(f"{name} is left out: {error}")
        return Catalog(layouts, left_out=left_out).measured(how.reading)


@contextmanager
def _opener(how: Opening, cluster: Executor | None) -> Iterator[Callable[..., Catalog]]:
    """Give what opens sources: where they lie, or on a cluster as layouts that its workers make."""
    if cluster is None:
        yield partial(Catalog.of_sources, how=how)
        return
    from relaqs.executors.spreading import OnExecutor, on_threads

    processes = OnExecutor(cluster, "laying out tables")
    with on_threads() as spread:
        yield partial(Catalog.of_sources, how=replace(how, spread=spread, processes=processes), lay_out=True)
