"""Policies that place the parts of models on nodes and devices.

What they see and say is in `relaqs/sharing/parts.py`. All are pure functions of the view.
"""
