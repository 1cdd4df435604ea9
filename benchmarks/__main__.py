"""Every benchmark of what is promised: `python -m benchmarks [--quick]`, or `make bench`.

In full: the overhead at scale 10, all 22 queries and the coverage at scale 1, the gate on what is made up, an
hour and 16 GB. With --quick all are made small, to see that they run: on little data fixed costs are all
there is.
"""

from __future__ import annotations

import argparse

from benchmarks import coverage, gate, overhead, queries

QUICK_SCALE = "0.1"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small data and few runs: to see that they run")
    quick = parser.parse_args().quick
    overhead.main(["--scale", QUICK_SCALE, "--runs", "1"] if quick else [])
    queries.main(["--scale", QUICK_SCALE] if quick else [])
    coverage.main(["--quick"] if quick else [])
    gate.main(["--quick"] if quick else ["--core"])


if __name__ == "__main__":
    main()
