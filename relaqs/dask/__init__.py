"""Shares of a Dask cluster's cores for any Dask client, without SQL: `share_cores`.

Dask runs the tasks of several clients in the order in which they came. One client with many tasks keeps all
others waiting. Here each client has a weight, and cores follow the weights from task to task.
"""

from relaqs.executors.dask.client import ClientShare, share_cores

__all__ = ["ClientShare", "share_cores"]
