"""ReLAQS: SQL answers that start in a blink, carry honest error bars, and sharpen until they are exact."""

from relaqs_engine.errors import (
    ClusterError,
    DataError,
    LayoutError,
    RelaqsError,
    SqlError,
    UnsupportedError,
)

__all__ = [
    "ClusterError",
    "DataError",
    "LayoutError",
    "RelaqsError",
    "SqlError",
    "UnsupportedError",
]
