"""Mini-batch training whose batch may change between two steps, and whose result depends on no grouping.

`protocol.py` says what an algorithm must compute, `settings.py` how its mini-batches may grow. Pure and
shared by everything that carries a run: `order.py` (which rows come next), `course.py` (from one step to the
next), `rates.py`, `noise.py`, `batches.py` (who decides how many rows a step has) and `journal.py` (what was
decided). `piece_sums.py` runs on workers. `run_book.py` is what a driver keeps, `step_job.py` a carrier by
tasks.

The other carrier is a gang of ranks that live in workers. `turn_job.py` drives it, `rank.py` is one of them,
`lesson.py` what they train, `membership.py` who trains together, `exchange.py` and `link.py` how they add up.
"""
