"""What every policy is made of: the view of the jobs, the plan of the cores, and how cores are divided.

Pure: numbers in, numbers out. The policies themselves are in `relaqs.policies`; whoever carries a plan out is
in `relaqs.scheduling` and `relaqs.executors`.
"""
