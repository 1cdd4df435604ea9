"""Mini-batch training in which the batch may change between two steps, and the result depends on no grouping.

`protocol.py` says what an algorithm must compute and how its mini-batches may grow. Pure and shared by all
that carries a run: `course.py` (from one step to the next: which rows, how many, at which rate) and
`journal.py` (what was decided). `step_job.py` carries a run by tasks, and keeps what its driver must know.

The other carrier is a gang of ranks that live in workers. `gang_job.py` and `turn_job.py` drive it, and
`turns.py` holds what was reached. `rank.py` is one of them, `lesson.py` what they train, `membership.py` who
trains together, `exchange.py` how they add up.
"""
