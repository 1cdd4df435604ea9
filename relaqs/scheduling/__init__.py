"""Who gets how many cores, and whose task starts next. `Desk` is the door.

Pure: whoever runs tasks brings the clock, the reports and the measured core-seconds. No thread, no Dask and
no SQL lives here. The same desk serves the threads of one process and a whole cluster.
"""

from relaqs.jobs.job import ClusterStatus, JobStatus
from relaqs.scheduling.desk import EPOCH_SECONDS, Allocator, Desk

__all__ = ["EPOCH_SECONDS", "Allocator", "ClusterStatus", "Desk", "JobStatus"]
