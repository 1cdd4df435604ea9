"""From records to a page: the figures of the ReLAQS thesis and of SLAQ, redrawn from what was measured here.

Reads records and draws; measures nothing. Every exhibit names the command behind it, and shows a number of
the papers only where this project knows it. Needs matplotlib, which the extras `tpch` and `lab` have.
"""
