"""What tools ask a Postgres server about itself, answered by DuckDB over tables of names and types alone.

No table's data and no file can be reached from here. `serve` in the package above speaks the protocol.
"""
