"""The executor on a Dask cluster: `client` here, `plugin` on its scheduler, `task` on its workers.

The only package that knows Dask. It shares the cores between the jobs of all clients; what a job is, and
which share it should have, is decided elsewhere.
"""

from importlib.util import find_spec

from relaqs.plugins import needed

if find_spec("distributed") is None:
    raise needed("distributed", "a Dask cluster", "cluster")

from relaqs.executors.dask.client import DaskExecutor

__all__ = ["DaskExecutor"]
