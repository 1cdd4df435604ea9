"""Queries as jobs: one module for each kind of plan, and the handle that the user holds.

A step is a mini-batch. Its tasks run SQL; folding their results gives an estimate, and `Publisher` makes a
snapshot of it. `online_query.py` is what `Session.online_sql` returns.
"""
