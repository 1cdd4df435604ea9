"""Who holds which slots: slot policies, all behind `plan(view) -> SlotPlan`.

Pure: a view of the gangs and the machines in, a plan out. No clock, no thread, no file and no `numpy.random`
live here. A policy that searches draws its numbers from its seed.
"""
