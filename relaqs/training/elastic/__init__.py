"""Mini-batch training in which the batch may change between two steps, and the result depends on no grouping.

`MiniBatchTraining` in `relaqs/training/protocol.py` says what an algorithm must compute, and how its
mini-batches may grow. Pure and shared by all that carries a run is `course.py`: from one step to the next,
which rows, how many, at which rate, and the journal of what was decided. `step_job.py` carries a run by
tasks, and keeps what its driver must know.

The other carrier is a gang of ranks that live in workers. `gang_carrier.py` makes a
training job of it, and drives it from turn to turn; `driver.py` has what it shares with the driver of parts.
`rank.py` is one rank and what it trains, `membership.py` who trains together, `mesh.py` how they add up.
"""
