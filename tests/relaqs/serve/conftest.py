"""One server for all tests of a run that need nothing special of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.server_process import Running, serving
from tests.made_once import made_once
from tests.relaqs.serve.served_tables import lay_out


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "served", lay_out)


@pytest.fixture(scope="session")
def server(warehouse: Path) -> Iterator[Running]:
    with serving(warehouse, "--threads", "2") as running:
        yield running
