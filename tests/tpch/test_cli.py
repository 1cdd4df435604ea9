"""`relaqs tpch` on the command line: registered with the program, for people and for pipes."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner
from relaqs_tpch import QUERIES, query
from relaqs_tpch.data import SECOND_LAYOUTS, TABLES

from relaqs.cli import program


def run(*arguments: str) -> tuple[int, str]:
    """Return the exit code and everything printed."""
    ended = CliRunner().invoke(program, ["tpch", *arguments])
    return ended.exit_code, ended.output


def test_generate_lays_out_and_lists(tmp_path: Path) -> None:
    code, output = run("generate", "--scale", "0.001", "--into", str(tmp_path), "--partitions", "4")
    assert code == 0
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in output.splitlines() if "│" in line]
    assert [row[0] for row in rows] == [table.name for table in TABLES]
    assert rows[0] == ["lineitem", "6,005", "4 partitions, clustered by l_orderkey"]
    assert rows[-2] == ["nation", "25", "static"]


def test_generate_lists_second_layouts(tmp_path: Path) -> None:
    arguments = ("generate", "--scale", "0.001", "--into", str(tmp_path), "--partitions", "4")
    code, output = run(*arguments, "--second-layouts")
    assert code == 0
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in output.splitlines() if "│" in line]
    assert [row[0] for row in rows] == [table.name for table in (*TABLES, *SECOND_LAYOUTS)]
    assert ["orders@customer", "1,500", "4 partitions, clustered by o_custkey"] in rows


def test_a_refusal_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    code, output = run("generate", "--scale", "0.001", "--into", str(tmp_path))
    assert code == 1
    assert output.startswith(f"Error: {tmp_path} already holds orders")
    assert output.count("\n") == 1


def test_bad_usage_is_exit_code_2() -> None:
    assert run("generate", "--scale", "many", "--into", "x")[0] == 2
    assert run("generate", "--scale", "0", "--into", "x")[0] == 2
    assert run("generate", "--into", "x")[0] == 2


def test_queries_as_json_lines() -> None:
    code, output = run("queries", "--format", "jsonl")
    assert code == 0
    assert [json.loads(line) for line in output.splitlines()] == [
        {"query": number, "sql": query(number)} for number in QUERIES
    ]


def test_queries_as_sql() -> None:
    code, output = run("queries")
    assert code == 0
    assert output.count(";\n") == 22
    assert output.startswith("-- Q1\n-- Pricing summary report")


def test_results_are_marked_as_unofficial() -> None:
    assert "not comparable to official TPC-H results" in " ".join(run("--help")[1].split())
