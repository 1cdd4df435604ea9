"""What a person does on Windows, in a process without all that Windows lacks (see `simulated_windows.py`)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

_BEGIN = """
import json, os, sys
from pathlib import Path
from tests.simulated_windows import pretend
pretend()
import duckdb, relaqs
root = Path(sys.argv[1])
"""

_LAYOUTS = """
rows = duckdb.sql("SELECT i % 3 AS zone, i / 100 AS delay FROM range(30000) AS t(i)")
trips = root / "warehouse" / "trips"
relaqs.shuffle(rows, trips, partitions=8)
counts = []
with relaqs.connect(root / "warehouse") as db:
    counts.append(db.online_sql("SELECT count(*) FROM trips WHERE delay >= 0").result().table[0][0].as_py())
    relaqs.append(duckdb.sql("SELECT 1::BIGINT AS zone, 5.0::DOUBLE AS delay FROM range(10)"), trips)
    counts.append(db.online_sql("SELECT count(*) FROM trips WHERE delay >= 0").result().table[0][0].as_py())
    db.refresh("trips")
    counts.append(db.online_sql("SELECT count(*) FROM trips WHERE delay >= 0").result().table[0][0].as_py())
relaqs.compact(trips)
relaqs.shuffle(rows, trips, partitions=8, force=True)
print(json.dumps([counts, sorted(name[:5] for name in os.listdir(trips))]))
"""

_FILES = """
files = root / "trips.parquet"
duckdb.sql("SELECT i AS a, i % 7 AS b FROM range(50000) AS t(i)").write_parquet(str(files))
cache = relaqs.Cache(root / "cache")
with relaqs.connect(files, cache_directory=root / "cache") as db:
    db.lay_out("trips")
    answer = db.online_sql("SELECT b, count(*) AS n FROM trips GROUP BY b ORDER BY b").result()
    in_use = len(cache.remove(cache.entries()))
print(json.dumps([answer.table["n"][0].as_py(), in_use, len(cache.remove(cache.entries()))]))
"""

_PROGRAM = """
from relaqs.__main__ import main
numbers = str(root / "numbers.parquet")
duckdb.sql("SELECT * FROM range(1000) AS t(i)").write_parquet(numbers)
sys.argv = ["relaqs", "sql", "SELECT count(*) AS n FROM numbers", "--format", "jsonl", "--data", numbers]
main()
"""


def _on_windows(code: str, folder: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", _BEGIN + code, str(folder)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_layouts_are_written_read_appended_to_and_compacted(tmp_path: Path) -> None:
    counts, left = json.loads(_on_windows(_LAYOUTS, tmp_path)[-1])
    assert counts == [30_000, 30_000, 30_010]
    assert left == ["data-", "manif"]


def test_a_file_is_read_and_what_is_kept_of_it_goes_when_nothing_uses_it(tmp_path: Path) -> None:
    rows, in_use, removed = json.loads(_on_windows(_FILES, tmp_path)[-1])
    assert rows == 7_143
    assert (in_use, removed) == (0, 1)


def test_the_program_answers(tmp_path: Path) -> None:
    last = json.loads(_on_windows(_PROGRAM, tmp_path)[-1])
    assert "1000" in json.dumps(last)
