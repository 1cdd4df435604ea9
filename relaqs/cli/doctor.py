"""`relaqs doctor`: what is installed, what the machine has, and how fast it answers."""

from __future__ import annotations

import math
import os
import platform
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from tempfile import TemporaryDirectory

import click

_CORE = ("relaqs", "duckdb", "pyarrow", "numpy", "sqlglot")
_NOT_FOR_USERS = {"all", "dev"}
_LEAST_FREE_BYTES = 2 << 30
_LEAST_MEMORY_BYTES = 1 << 30
_ROWS = 3_000_000
_NEAR = 0.05
_SQL = """
    SELECT zone, count(*) AS n, sum(fare) AS fares
    FROM trips WHERE name LIKE '%77%' GROUP BY zone ORDER BY zone
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """A line of the report. remedy: what to do about it, "" where all is well."""

    about: str
    said: str
    remedy: str = ""


@click.command("doctor", short_help="Look at the installation and the machine, and measure both.")
@click.option("--measure/--no-measure", default=True, show_default=True, help="Ask 3 million rows; 10 s.")
@click.option(
    "--cache",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The folder of the cache. By default $RELAQS_CACHE or ~/.cache/relaqs.",
)
def doctor(measure: bool, cache: Path | None) -> None:
    """Say what is installed, what this machine has, how fast it answers, and what to do about it.

    Nothing is sent anywhere, and nothing stays behind. The exit code is 1 if a line begins with !.
    """
    found = []
    for finding in findings(cache, measure=measure):
        click.echo(f"{'!' if finding.remedy else ' '} {finding.about + ':':12} {finding.said}")
        if finding.remedy:
            click.echo(f"{'':15}{finding.remedy}")
        found.append(finding)
    if any(finding.remedy for finding in found):
        raise click.exceptions.Exit(1)


def findings(cache: Path | None = None, *, measure: bool = True) -> Iterator[Finding]:
    """Yield what was found, each as soon as it is known. cache: its folder, by default the usual one."""
    yield Finding("versions", " · ".join(f"{name} {version(name)}" for name in _CORE))
    yield Finding("python", f"{platform.python_version()} on {platform.platform(terse=True)}")
    yield _cores()
    yield _memory()
    yield _disk(cache)
    yield from _extras()
    if measure:
        yield from _measured()


def _cores() -> Finding:
    from relaqs.executors.threads import usable_cores

    usable, there = usable_cores(), os.cpu_count() or 1
    return Finding(
        "cores", f"{usable}" if usable == there else f"{usable} of {there} may be used by this process"
    )


def _memory() -> Finding:
    from relaqs.memory import machine_memory_bytes, usual_memory_bytes

    there, used = machine_memory_bytes(), usual_memory_bytes(on_cluster=False)
    said = f"{there / 1e9:.1f} GB, of which queries take up to {used / 1e9:.1f} GB"
    few = "less than 1 GB for queries: they will use the disk" if used < _LEAST_MEMORY_BYTES else ""
    return Finding("memory", said, few)


def _disk(cache: Path | None) -> Finding:
    from relaqs_engine.layouts.cache import Cache

    folder = Cache(cache).directory
    there = next(each for each in (folder, *folder.parents) if each.exists())
    if not os.access(there, os.W_OK):
        return Finding("cache", f"{folder} cannot be written", "set RELAQS_CACHE to a folder of yours")
    free = shutil.disk_usage(there).free
    few = "set RELAQS_CACHE to a folder on a larger disk" if free < _LEAST_FREE_BYTES else ""
    return Finding("cache", f"{folder}, with {free / 1e9:.1f} GB free", few)


def _extras() -> Iterator[Finding]:
    """Yield which extras are installed whole, and which are not."""
    packages: dict[str, list[str]] = {}
    for each in requires("relaqs") or ():
        if named := re.search(r"extra == ['\"]([\w-]+)['\"]", each):
            packages.setdefault(named[1], []).append(re.split(r"[\[<>=~!; ]", each)[0])
    extras = sorted(packages.keys() - _NOT_FOR_USERS)
    whole = [extra for extra in extras if all(map(_is_installed, packages[extra]))]
    yield Finding("extras", ", ".join(whole) or "none")
    if missing := ", ".join(extra for extra in extras if extra not in whole):
        yield Finding("others", f"{missing}: pip install 'relaqs[NAME]'")


def _is_installed(package: str) -> bool:
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False


def _measured() -> Iterator[Finding]:
    """Yield how soon an estimate comes here and how soon DuckDB's answer, over rows that are made for it."""
    from relaqs.executors.spreading import shuffle
    from relaqs.opening import connect
    from relaqs.rendering.rounding import show_percent

    with TemporaryDirectory(prefix="relaqs-doctor-") as name:
        folder = Path(name)
        source = folder / "trips.parquet"
        _write_trips(source)
        began = time.perf_counter()
        shuffle(str(source), folder / "laid" / "trips", partitions=50)
        yield Finding(
            "laying out", f"{_ROWS / (time.perf_counter() - began) / 1e6:.1f} million rows a second"
        )
        with connect(source, cache_directory=folder / "cache", background_layouts=False) as db:
            db.sql("SELECT count(*) AS n FROM trips")  # what is loaded once is no part of the figures
            plain = db.sql(_SQL)
        # Estimates are asked for, though an answer as soon as this would come whole.
        with connect(folder / "laid", cache_directory=folder / "cache", exact_below_seconds=0) as db:
            next(iter(db.online_sql(_SQL, seed=1)))
            snapshots = list(db.online_sql(_SQL))
    last = snapshots[-1]
    near = next(each for each in snapshots if each.error <= _NEAR)
    early = {each.batch: each for each in (snapshots[0], near) if not each.is_exact and each.error < math.inf}
    soon = [f"{each.elapsed_seconds:.2f} s to ± {show_percent(each.error)}" for each in early.values()]
    yield Finding(
        "DuckDB", f"{plain.elapsed_seconds:.2f} s to an exact answer over {_ROWS / 1e6:g} million rows"
    )
    yield Finding("estimate", ", ".join([*soon, f"{last.elapsed_seconds:.2f} s to exact"]))
    if last.estimate.equals(plain.estimate):
        yield Finding("answers", "the last estimate equals DuckDB's answer")
    else:
        yield Finding("answers", "the last estimate differs from DuckDB's", "please report this as a bug")


def _write_trips(path: Path) -> None:
    """Write rows with a few zones, a fare, and a text that is dear to look through."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import parquet

    draw = np.random.default_rng(0)
    numbers = draw.integers(0, 1_000_000, _ROWS)
    names = pa.array(numbers).cast(pa.string())
    columns = {"zone": draw.integers(0, 12, _ROWS), "fare": draw.integers(0, 100, _ROWS), "name": names}
    parquet.write_table(pa.table(columns), path)
