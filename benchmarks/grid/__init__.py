"""The grid: kinds of tables × types × shapes of statements × aggregates × doors, beside plain DuckDB.

python -m benchmarks.grid --seed 1 --minutes 2

dimensions.py   what a case is made of, and the covering array of cases
worlds.py       small tables of every kind, made from the seed, and their true rows
statements.py   the SELECT of a case, in parts that can be left out
doors.py        how it is asked: in this process, on a cluster, by the program, by a client of Postgres
judge.py        whether the answers are right
minimise.py     what of a failing case can be left out, and the test that is left
workers.py      the processes that run cases
"""
