"""A cluster of machines that is only computed: gangs arrive, a slot policy gives them slots, and they train.

`simulator.py` has the loop. The same seed gives the same history: there is no clock but the simulator's own.
Nothing here decides who gets a slot. A slot policy does, from the view that is filled here.
"""
