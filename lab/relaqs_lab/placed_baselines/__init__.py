"""Placed policies of papers, to compare ours with.

`relaqs.placed_policies.registry` finds them by entry points, so a cluster can run them, too.
"""
