"""One query's way from SQL to an answer: catalog and layouts, rewrite, plan, partial aggregates, estimate.

Pure decisions plus one edge (`duck.py`, which alone calls DuckDB). No Dask, no threads, no clock.
"""
