"""A simulator of jobs that compute and communicate in turns on machines that they share in groups.

Time moves by single subtasks (PULL, COMP, PUSH, and reading the disk). No equation of the model that policies
plan by moves it, so the model's error can be measured here.
"""
