"""Models that are cut into parts, on nodes with devices: what a placed policy sees and says, in columns.

A *part* is one partition of a model for one replica, or the server that adds gradients up. (MLFS calls it a
task.) Pure: no clock, no file, no thread, no random generator and no Dask live here. The policies themselves
are in `relaqs.placed_policies`.
"""
