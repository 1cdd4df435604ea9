"""Models that are cut into parts: stages of layers, and replicas of these, each part on a worker.

`placing.py` says which layers a part has, and where parts are. `part_host.py` is what lives in a worker, and
makes a step of the parts of one place. They send each other letters by `elastic/mesh.py`.
`elastic/torch_module.py` has the layers. `parted_job.py` drives all of it, as a training job.
The model has the same bits whatever its parts, and wherever they are.
"""
