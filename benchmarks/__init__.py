"""Measurements of what is promised, one command each. They print ratios taken in one run; none is a test.

`overhead`: what it costs to see the answer early, beside plain DuckDB. `queries`: how each of the 22 TPC-H
queries is answered, how soon, and how often its intervals hold. `coverage`: how often they hold as rows and
clusters are sampled. `distinct`: how often those of COUNT(DISTINCT) do. `flights`: a real-world table.
`grid`: whether answers are right, over a grid of tables, types, queries and doors: it fails where one is not.
`hostile_users`: how long a user of a server waits beside another one who does their worst.
`first_answer`: how soon files are answered that nobody prepared, beside plain DuckDB.
`orchestration_live`: elastic training and queries on one cluster, beside gangs of fixed size.
Records go to `results/`, data that was made is kept in `results/data/`.
"""
