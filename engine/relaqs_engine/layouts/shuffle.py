"""Laying a table out so that any prefix of its partitions is a uniform random sample of it."""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Sequence
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

from relaqs_engine.duck import DUCKDB_VERSION, open_for_writing
from relaqs_engine.errors import LayoutError
from relaqs_engine.layouts.assignment import HASH_SCHEME, Assignment, hash_probe, key_unit
from relaqs_engine.layouts.folder import Writing, writing
from relaqs_engine.layouts.manifest import Layout, Partition, read_manifest
from relaqs_engine.layouts.partitions import PartitionWriter, Progress, WrittenPartitions
from relaqs_engine.layouts.sources import ParquetSource, TableSource, fingerprint, open_source
from relaqs_engine.layouts.statistics import column_statistics

DEFAULT_MEMORY_LIMIT_BYTES = 4 << 30
MOST_PARTITIONS = 100_000
