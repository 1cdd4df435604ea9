"""Tables on disk: a layout's manifest, how rows are assigned to partitions and blocks, writing, verifying.

Nothing here plans or answers a query. DuckDB is reached through `relaqs_engine.duck` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from relaqs_bootstrap import on_first_use

if TYPE_CHECKING:
    from relaqs_engine.layouts.build import add_static
    from relaqs_engine.layouts.growth import append, compact
    from relaqs_engine.layouts.manifest import Layout, Table
    from relaqs_engine.layouts.manifest_file import read_manifest
    from relaqs_engine.layouts.sampled import shuffle
    from relaqs_engine.layouts.verification import VerifyReport, verify

__all__ = [
    "Layout",
    "Table",
    "VerifyReport",
    "add_static",
    "append",
    "compact",
    "read_manifest",
    "shuffle",
    "verify",
]

__getattr__, __dir__ = on_first_use(__name__)
