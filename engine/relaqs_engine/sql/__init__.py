"""SQL text in, one checked SELECT out: parsing, what is refused, and qualified names.

Knows sqlglot and the catalog's names. Reads no data and makes no plan.
"""
