"""Group policies: which jobs take turns on the same machines. One policy a file, and one idea of Harmony.

Pure: what they see and say is in `relaqs_lab.groups`. The registry knows them by name.
"""
