"""Training whose parameters lie in shards on the workers of a cluster, and not in the client.

An iteration is PULL, COMP and PUSH: a task fetches the parameters from the workers that own them, sums over
its rows, and sends each owner its part of the sums. Source: Lee et al., Harmony, ICDCS 2021, section IV.
`ShardedTraining` in `relaqs/training/protocol.py` says what an algorithm must have. `shard_job.py` drives a
run. There is no Dask here: `shards.py` is one shard, `holder.py` what a worker has of them and does, and
`relaqs.executors.dask.peer_agent` speaks.
"""
