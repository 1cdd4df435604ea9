"""Running a plan, without clock or threads: task SQL for workers, state and estimates where results meet.

Partial tables in, Estimates out. Statistics come from relaqs_bootstrap; DuckDB is reached through `duck`.
"""
