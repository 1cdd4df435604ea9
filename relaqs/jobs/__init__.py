"""What the cluster knows of any work: a job, its steps and tasks, who runs it, and where.

A query, a training run and a loop of the user's own are all jobs. Nothing here knows SQL, models or Dask:
`job.py` is the contract, `runner.py` drives one job over whatever keeps the contract of `executor.py`.
"""
