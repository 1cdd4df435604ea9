"""TPC-H on one machine: the data, laid out, and the 22 queries. Benchmarks live here, engine code never.

The data comes from the `tpchgen-cli` generator and the queries have the specification's validation
parameters, but nothing here is audited: no figure made with it is comparable to an official TPC-H result.
"""

from relaqs_tpch.data import generate
from relaqs_tpch.warehouse import QUERIES, query

__all__ = ["QUERIES", "generate", "query"]
