"""`relaqs shuffle` and `relaqs verify` as a user runs them: output, errors, exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from relaqs_engine.layouts import read_manifest

from relaqs.cli import program

Run = Callable[..., Result]


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "lines.parquet"
    pq.write_table(
        pa.table({"order_id": [1, 1, 2, 3], "part": [1, 2, 1, 1], "price": [1.5, 2.0, 3.0, 4.5]}), path
    )
    return str(path)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the program with these arguments in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(program, list(arguments))


def test_shuffle_lays_out_what_the_options_say(run: Run, source: str, tmp_path: Path) -> None:
    result = run(
        *("shuffle", source, "--into", "warehouse/lines", "--partitions", "3", "--seed", "-7"),
        *("--cluster-by", "order_id", "--cluster-by", "part", "--memory-limit", "512 MiB"),
    )
    assert result.exit_code == 0, result.output
    assert result.stdout == (
        "lines: 4 rows, 3 partitions, clustered by order_id, part (4 values), "
        f"in {tmp_path / 'warehouse' / 'lines'}\n"
    )
    layout = read_manifest(tmp_path / "warehouse" / "lines")
    assert (len(layout.partitions), layout.cluster_key, layout.seed) == (3, ("order_id", "part"), -7)


def test_several_sources_are_one_table(run: Run, source: str, tmp_path: Path) -> None:
    (tmp_path / "more.parquet").write_bytes(Path(source).read_bytes())
    assert run("shuffle", source, "more.parquet", "--into", "lines", "--static").exit_code == 0
    assert read_manifest(tmp_path / "lines").row_count == 8


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (["nope.parquet", "--into", "t"], 1, "there is no file nope.parquet"),
        (["lines.parquet", "--into", "t", "--cluster-by", "ordr_id"], 1, "did you mean 'order_id'"),
        (["lines.parquet", "--into", "there"], 1, "holds a layout already; give force=True (--force)"),
        (["lines.parquet"], 2, "Missing option '--into'"),
        (["--into", "t"], 2, "Missing argument 'SOURCE...'"),
        (["lines.parquet", "--into", "t", "--partitions", "0"], 2, "0 is not in the range"),
        (["lines.parquet", "--into", "t", "--memory-limit", "lots"], 2, "'lots' is no amount of memory"),
        (
            ["lines.parquet", "--into", "t", "--static", "--cluster-by", "part"],
            2,
            "there is nothing to cluster",
        ),
    ],
)
def test_what_cannot_be_done_is_said_on_the_error_stream(
    run: Run, source: str, tmp_path: Path, arguments: list[str], exit_code: int, message: str
) -> None:
    assert run("shuffle", source, "--into", "there", "--static").exit_code == 0
    result = run("shuffle", *arguments)
    assert result.exit_code == exit_code
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    assert not (tmp_path / "t").exists()


def test_force_replaces_a_layout(run: Run, source: str, tmp_path: Path) -> None:
    assert run("shuffle", source, "--into", "t", "--static").exit_code == 0
    assert run("shuffle", source, "--into", "t", "--force").exit_code == 0
    assert read_manifest(tmp_path / "t").is_sampled


def test_verify_prints_its_checks_and_fails_when_one_does(run: Run, source: str, tmp_path: Path) -> None:
    assert run("shuffle", source, "--into", "warehouse/[bold]lines").exit_code == 0
    sound = run("verify", "warehouse")
    assert sound.exit_code == 0
    assert "[bold]lines" in sound.stdout
    assert "WRONG" not in sound.stdout

    path = read_manifest(tmp_path / "warehouse" / "[bold]lines").paths[0]
    path.write_bytes(path.read_bytes()[:-1])
    broken = run("verify", "warehouse", "--format", "jsonl")
    assert broken.exit_code == 1
    checks = {check["name"]: check for check in map(json.loads, broken.stdout.splitlines())}
    assert checks["checksums"]["ok"] is False
    assert str(path) in checks["checksums"]["detail"]
    table = run("verify", "warehouse").stdout
    assert "WRONG" in table
    assert "…" not in table


def test_verify_of_nothing_is_an_error(run: Run) -> None:
    result = run("verify", "nowhere")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "is not a folder" in result.stderr


def test_append_adds_rows_and_a_named_batch_only_once(run: Run, source: str, tmp_path: Path) -> None:
    assert run("shuffle", source, "--into", "lines", "--partitions", "2").exit_code == 0
    added = run("append", source, source, "--into", "lines", "--batch", "may", "--memory-limit", "512MB")
    assert (added.exit_code, added.stdout) == (0, f"lines: 8 rows, 2 partitions, in {tmp_path}/lines\n")
    again = run("append", source, "--into", "lines", "--batch", "may")
    assert again.exit_code == 0
    assert again.stdout.splitlines()[0] == "batch 'may' was appended before; nothing was done"
    assert read_manifest(tmp_path / "lines").row_count == 8


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (["nope.parquet", "--into", "lines"], 1, "there is no file nope.parquet"),
        (["lines.parquet", "--into", "elsewhere"], 1, "holds no layout"),
        (["other.parquet", "--into", "lines"], 1, "does not fit lines: it lacks the column 'order_id'"),
        (["lines.parquet"], 2, "Missing option '--into'"),
    ],
)
def test_what_cannot_be_appended_is_said(
    run: Run, source: str, tmp_path: Path, arguments: list[str], exit_code: int, message: str
) -> None:
    pq.write_table(pa.table({"x": [1]}), tmp_path / "other.parquet")
    assert run("shuffle", source, "--into", "lines", "--partitions", "2").exit_code == 0
    result = run("append", *arguments)
    assert (result.exit_code, result.stdout) == (exit_code, "")
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "elsewhere").exists()


def test_compact_makes_one_file_of_each_partition(run: Run, source: str, tmp_path: Path) -> None:
    assert run("shuffle", source, "--into", "lines", "--partitions", "1").exit_code == 0
    for _ in range(20):
        added = run("append", source, "--into", "lines")
    assert added.stdout.splitlines()[1] == (
        "a partition has up to 21 files: `relaqs compact lines` makes one of them"
    )
    result = run("compact", "lines")
    assert (result.exit_code, result.stdout) == (0, f"lines: 84 rows, 1 partition, in {tmp_path}/lines\n")
    assert len(read_manifest(tmp_path / "lines").files) == 1
    assert run("compact", "nowhere").exit_code == 1


def test_compact_of_a_warehouse_compacts_all_its_tables(run: Run, source: str, tmp_path: Path) -> None:
    for table in ("a", "b"):
        assert run("shuffle", source, "--into", f"wh/{table}", "--partitions", "1").exit_code == 0
        assert run("append", source, "--into", f"wh/{table}").exit_code == 0
    result = run("compact", "wh")
    assert (result.exit_code, result.stdout) == (
        0,
        f"a: 8 rows, 1 partition, in {tmp_path}/wh/a\nb: 8 rows, 1 partition, in {tmp_path}/wh/b\n",
    )
    assert [len(read_manifest(tmp_path / "wh" / table).files) for table in ("a", "b")] == [1, 1]


def test_append_to_a_warehouse_names_its_tables(run: Run, source: str, tmp_path: Path) -> None:
    assert run("shuffle", source, "--into", "wh/lines").exit_code == 0
    result = run("append", source, "--into", "wh")
    assert result.exit_code == 1
    assert f"it has the tables lines: name one, as in {tmp_path}/wh/lines" in result.stderr


@pytest.mark.parametrize("cluster", [(), ("--cluster-by", "x")])
def test_more_partitions_than_the_rows_can_fill_are_refused(
    run: Run, tmp_path: Path, cluster: tuple[str, ...]
) -> None:
    pq.write_table(pa.table({"x": range(50_000)}), tmp_path / "x.parquet")
    result = run("shuffle", "x.parquet", "--into", "wh/x", "--partitions", "12501", *cluster)
    assert result.exit_code == 1
    assert "12,501 partitions are too many for 50,000 rows" in result.stderr
    assert "up to 12,500 can be made of x.parquet" in result.stderr
    assert not (tmp_path / "wh" / "x").exists()


def test_a_misspelt_file_is_proposed_as_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "flights.parquet").touch()
    wrong = tmp_path / "flights.parqet"
    told = CliRunner().invoke(program, ["tables", "--data", str(wrong)])
    assert told.exit_code == 2
    words = "".join(told.output.split())
    assert f"nofileorfolder{wrong};didyoumean{tmp_path / 'flights.parquet'}?" in words
    none = CliRunner().invoke(program, ["tables", "--data", str(tmp_path / "there" / "x.csv")])
    assert "name one, or a pattern" in " ".join(none.output.split())
