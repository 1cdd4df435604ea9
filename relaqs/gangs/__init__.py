"""Gangs on machines: what a slot policy sees and says, in columns of numpy arrays.

Pure: no clock, no file, no thread, no random generator and no Dask live here. The policies themselves are in
`relaqs.slot_policies`.
"""
