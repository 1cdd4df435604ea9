"""Workers from a queueing system of a computing centre, by dask-jobqueue, and a query on them.

    python deploy/hpc.py warehouse "SELECT count(*) AS n FROM flights" --jobs 8

Give `--system` for another than SLURM. Account, queue and the like are in jobqueue's configuration file.
"""

from __future__ import annotations

import argparse
from typing import Any

import dask_jobqueue
from dask_jobqueue.local import LocalCluster

import relaqs

CORES, MEMORY = 16, "64GB"  # of one job of the queueing system


def cluster_of(system: str) -> Any:
    """Return a cluster without workers yet. system: SLURM, PBS, SGE, LSF, HTCondor, OAR or Moab; or Local."""
    made_by = getattr(dask_jobqueue, f"{system}Cluster", None) or LocalCluster
    # A process for each core: a query's tasks use one core each, and memory is bounded by process.
    return made_by(cores=CORES, processes=CORES, memory=MEMORY, walltime="02:00:00", death_timeout=600)


def main() -> None:
    """Start the workers, run the query, print its answer as it sharpens, and end the workers."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("data")
    arguments.add_argument("sql")
    arguments.add_argument("--jobs", type=int, default=2)
    arguments.add_argument("--system", default="SLURM")
    given = arguments.parse_args()
    with cluster_of(given.system) as cluster:
        cluster.scale(jobs=given.jobs)
        with relaqs.connect(given.data, cluster=cluster.scheduler_address) as db:
            for snapshot in db.online_sql(given.sql):
                print(snapshot)


if __name__ == "__main__":
    main()
