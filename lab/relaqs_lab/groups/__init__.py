"""Groups of jobs that share machines in turns: what a group policy sees and says, in columns of numpy arrays.

A job of a parameter server computes (COMP), and pulls and pushes its model over the network (COMM). Jobs of
one group have the same machines: while one computes, another communicates.

Pure: no clock, no file, no thread, no random generator and no Dask live here. The policies themselves are in
`relaqs_lab.group_policies`.
"""
