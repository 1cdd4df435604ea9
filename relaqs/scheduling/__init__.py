"""Who gets how many cores now: keeps what jobs report, asks a policy each epoch, tells how things stand.

Pure: whoever runs tasks brings the clock, the reports and the measured core-seconds, and carries the plans
out. No thread, no Dask, no SQL lives here; one object serves the threads of a process or a whole cluster.
"""

from relaqs.jobs.description import JobDescription
from relaqs.scheduling.allocator import EPOCH_SECONDS, Allocator
from relaqs.scheduling.status import ClusterStatus, JobStatus

__all__ = ["EPOCH_SECONDS", "Allocator", "ClusterStatus", "JobDescription", "JobStatus"]
