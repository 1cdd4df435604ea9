"""The laboratory: policies of papers beside our own on simulated clusters, and what was measured of them.

No user needs it to ask or to train, so nothing of the product imports it: `relaqs` finds its commands
(`simulate`, `learn`) and the baselines of papers by entry points (`relaqs/plugins.py`). Its extra, `lab`, has
what draws figures and what learns.

From the ground up, a room imports those before it:

- `slot_baselines`, `placed_baselines`: policies of papers that ours are compared with. A cluster runs them
  live, too. `groups` and `group_policies`: jobs that take turns on the same machines, as Harmony has them;
  these are simulated alone.
- `records`: what a run measured, in files that only grow.
- `simulation`: simulated clusters, one for each kind of policy.
- `mlf_rl`: MLFS with an order and a choice of nodes that were learned. `learning`: how, from simulated jobs.
- `cli`: `relaqs simulate` and `relaqs learn`. `report`: the figures of `relaqs tpch report`.
"""
