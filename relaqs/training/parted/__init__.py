"""Models that are cut into parts: stages of layers, and replicas of these, each part on a worker.

`cut.py` says which layers a part has. `part_step.py` makes a step of the parts of one place, and `mail.py`
carries what they send each other. `part_host.py` is what lives in a worker. `part_carrier.py` drives it from
turn to turn, and `placing.py` says where parts are. `parted_job.py` makes a training job of it all.
The model has the same bits whatever its parts, and wherever they are.
"""
