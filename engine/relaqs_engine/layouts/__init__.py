"""Tables on disk: a layout's manifest, how rows are assigned to partitions and blocks, writing, verifying.

Nothing here plans or answers a query. DuckDB is reached through `relaqs_engine.duck` alone.
"""

from relaqs_engine.layouts.append import append
from relaqs_engine.layouts.compact import compact
from relaqs_engine.layouts.manifest import Layout, read_manifest
from relaqs_engine.layouts.shuffle import shuffle
from relaqs_engine.layouts.static import add_static
from relaqs_engine.layouts.verify import VerifyReport, verify

__all__ = ["Layout", "VerifyReport", "add_static", "append", "compact", "read_manifest", "shuffle", "verify"]
