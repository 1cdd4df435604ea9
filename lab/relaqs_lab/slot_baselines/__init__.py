"""Slot policies of papers, to compare ours with.

`relaqs.slot_policies.registry` finds them by entry points, so a cluster can run them, too.
"""
