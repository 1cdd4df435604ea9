"""How an answer looks: rounding, then one view of a snapshot, drawn for terminals and for notebooks.

Everything here is a pure function of a snapshot, or of how jobs stand. No queries, no clocks, no files; and
nothing outside this folder decides how a number is written.
"""
