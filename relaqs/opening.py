"""The way in: from folders, files and addresses to a session."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relaqs_engine.catalog import Catalog
from relaqs_engine.layouts.cache import plain_files
from relaqs_engine.sql.views import check_views

from relaqs.executors import open_executor
from relaqs.laying_out import on_threads
from relaqs.memory import machine_memory_bytes, memory_bytes, result_bytes
from relaqs.options import ArgumentError, check_count
from relaqs.policies import DEFAULT_POLICY
from relaqs.queries.online_query import OnlineQuery
from relaqs.session import Session
from relaqs.sharing.policy import Policy

if TYPE_CHECKING:
    from distributed import Client, Security

_MEMORY_SHARE = 0.5  # of this machine's memory, where the user names no limit


def connect(
    data: str | Path | None = None,
    *,
    tables: Mapping[str, str | Path] | None = None,
    cluster: str | Client | None = None,
    views: Mapping[str, str] | None = None,
    threads: int | None = None,
    memory_limit: int | str | None = None,
    cache_directory: str | Path | None = None,
    policy: str | Policy = DEFAULT_POLICY,
    result_limit: int | str | None = None,
    security: Security | Mapping[str, Any] | None = None,
) -> Session:
    """Return a session over the tables of a warehouse folder, or over plain files, laid out on first use.

    data: a folder of layouts; or a Parquet or CSV file, or a folder of such, each a table by its own name.
    tables: name → Parquet or CSV files (path, folder or glob). views: name → SELECT, over tables and the
    views before it. cluster: a Dask scheduler's address or a client; without it queries run on threads of
    this process. threads: how many. memory_limit: in bytes or as "4GB", of each process that runs queries;
    default: half of this machine's memory, a quarter with a cluster. cache_directory: where plain files are
    laid out; default: $RELAQS_CACHE or ~/.cache/relaqs. policy: who gets how many of the cores, by name, such
    as "relaqs", "fair" or "max_sum", or an object with `plan`; see `relaqs.policies`. result_limit: as
    memory_limit, what an answer may take; a query that goes beyond fails. Default: anything.
    security: for a scheduler's address that begins with tls://, a `distributed.Security`, or its arguments:
    tls_ca_file, tls_client_cert, tls_client_key. Default: what Dask's configuration says.
    Raises LayoutError or DataError for tables that cannot be used, ClusterError for such a cluster.
    PolicyError for an unknown policy.
    """
    limit = _default_memory_bytes(cluster is not None) if memory_limit is None else memory_bytes(memory_limit)
    catalog = _open_catalog(data, tables or {}, cache_directory)
    check_views(views or {}, catalog.tables)
    cores = None if threads is None else check_count("threads", threads)
    executor = open_executor(cluster, cores=cores, policy=policy, security=security)
    exact_threads = executor.capacity if cluster is None else 1  # a task of a cluster is one core
    try:
        return Session(
            catalog,
            views or {},
            executor,
            memory_limit_bytes=limit,
            exact_threads=exact_threads,
            result_limit_bytes=None if result_limit is None else result_bytes(result_limit),
        )
    except BaseException:
        executor.close()
        raise


def online_sql(sql: str, data: str | Path | None = None, **options: Any) -> OnlineQuery:
    """Start answering one SELECT over `data`; the options are those of `Session.online_sql` and `connect`.

    The session behind it closes when the query is no longer referred to.
    """
    opening = {name: options.pop(name) for name in _CONNECT_OPTIONS & set(options)}
    return connect(data, **opening).online_sql(sql, **options)


_CONNECT_OPTIONS = {
    "tables",
    "cluster",
    "views",
    "threads",
    "memory_limit",
    "cache_directory",
    "policy",
    "result_limit",
    "security",
}


def _open_catalog(
    data: str | Path | None, tables: Mapping[str, str | Path], cache_directory: str | Path | None
) -> Catalog:
    if data is None and not tables:
        raise ArgumentError('there are no tables; give a warehouse folder, or tables={"name": "files"}')
    plain = {} if data is None else plain_files(Path(data))
    laid_out = () if data is None or plain else Catalog.open(data).layouts
    cache = None if cache_directory is None else Path(cache_directory)
    with on_threads() as spread:
        sources = Catalog.of_sources(plain | dict(tables), cache, _announce, spread)
    return Catalog((*laid_out, *sources.layouts))


def _announce(message: str) -> None:
    print(f"relaqs: {message}", file=sys.stderr)


def _default_memory_bytes(is_cluster: bool) -> int:
    return int(machine_memory_bytes() * _MEMORY_SHARE / (2 if is_cluster else 1))
