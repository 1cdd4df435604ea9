"""Iceberg tables in a folder, written by pyiceberg itself. Its own catalogs need a database or a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import update_table_metadata


class FolderCatalog(NoopCatalog):
    """A catalog of one table, whose states are files with increasing numbers."""

    def __init__(self, folder: Path) -> None:
        super().__init__("folder")
        self._folder = folder
        self._states = 0

    def new_table(self, rows: pa.Table, partitioned_by: str | None = None) -> Table:
        """Return a table with these rows."""
        metadata = new_table_metadata(
            schema=self._convert_schema_if_needed(rows.schema),  # type: ignore[arg-type]
            partition_spec=UNPARTITIONED_PARTITION_SPEC,
            sort_order=UNSORTED_SORT_ORDER,
            location=f"file://{self._folder}",
        )
        table = self._table(metadata)
        if partitioned_by is not None:
            with table.update_spec() as change:
                change.add_identity(partitioned_by)
        table.append(rows)
        return table

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        changed = self._table(update_table_metadata(table.metadata, updates))
        return CommitTableResponse(metadata=changed.metadata, metadata_location=changed.metadata_location)

    def _table(self, metadata: Any) -> Table:
        place = self._folder / "metadata" / f"{self._states:05}-state.metadata.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(metadata.model_dump_json())
        self._states += 1
        return Table(("folder", "table"), metadata, str(place), load_file_io({}, str(place)), self)
