"""A cluster that is only computed, on which the parts of models are placed, contend, move, and learn.

`simulator.py` has the loop. The same seed gives the same history: there is no clock but the simulator's own.
Nothing here decides where a part is. A placed policy does, from the view that is filled here.
"""
