"""Forty ordinary questions about four sets of files, which `benchmarks.first_answer` asks."""

from __future__ import annotations

FLIGHTS = (
    "SELECT count(*) AS n FROM flights",
    "SELECT origin, count(*) AS n, avg(delay) AS late FROM flights GROUP BY 1 ORDER BY n DESC LIMIT 10",
    "SELECT date_trunc('month', date) AS month, avg(delay) AS late FROM flights GROUP BY 1 ORDER BY 1",
    "SELECT count(*) AS n FROM flights WHERE delay > 60 AND distance < 500",
    "SELECT origin, destination, count(*) AS n FROM flights GROUP BY ALL ORDER BY n DESC LIMIT 20",
    "SELECT median(delay) AS m, quantile_cont(delay, 0.9) AS late FROM flights",
    "SELECT count(*) AS n FROM flights WHERE date < TIMESTAMP '2001-01-08'",
    "SELECT count(DISTINCT origin) AS airports FROM flights",
    "SELECT hour(date) AS hour, avg(CASE WHEN delay > 15 THEN 1 ELSE 0 END) AS late FROM flights GROUP BY 1",
    "SELECT * FROM flights WHERE delay > 1000 ORDER BY delay DESC LIMIT 5",
)
BABYNAMES = (
    "SELECT year, sum(n) AS births FROM babynames GROUP BY year ORDER BY year",
    "SELECT name, sum(n) AS n FROM babynames WHERE sex = 'F' GROUP BY name ORDER BY n DESC LIMIT 10",
    "SELECT count(DISTINCT name) AS names FROM babynames",
    "SELECT sex, avg(n) AS mean, stddev(n) AS spread FROM babynames GROUP BY sex ORDER BY sex",
    "SELECT name, max(prop) AS p FROM babynames WHERE year >= 2000 GROUP BY 1 ORDER BY 2 DESC LIMIT 5",
)
TPCH = (
    "SELECT l_returnflag, l_linestatus, sum(l_quantity) AS q, count(*) AS n FROM lineitem GROUP BY ALL",
    "SELECT sum(l_extendedprice * l_discount) AS r FROM lineitem WHERE l_shipdate >= DATE '1994-01-01' "
    "AND l_shipdate < DATE '1995-01-01' AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24",
    "SELECT l_shipmode, count(*) AS n FROM lineitem WHERE l_receiptdate > l_commitdate GROUP BY 1",
    "SELECT l_returnflag, sum(l_extendedprice) AS base, sum(l_extendedprice * (1 - l_discount)) AS sold, "
    "sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS paid, avg(l_quantity) AS q, "
    "avg(l_discount) AS d FROM lineitem WHERE l_shipdate <= DATE '1998-09-02' GROUP BY 1 ORDER BY 1",
    "SELECT year(l_shipdate) AS year, sum(l_extendedprice) AS sold FROM lineitem GROUP BY 1 ORDER BY 1",
    "SELECT l_suppkey, sum(l_quantity) AS q FROM lineitem GROUP BY 1 ORDER BY q DESC LIMIT 10",
    "SELECT o_orderpriority, count(*) AS n FROM orders WHERE o_orderdate >= DATE '1993-07-01' GROUP BY 1",
    "SELECT n_name, sum(o_totalprice) AS spent FROM orders JOIN customer ON o_custkey = c_custkey "
    "JOIN nation ON c_nationkey = n_nationkey GROUP BY 1 ORDER BY spent DESC LIMIT 5",
    "SELECT o_orderpriority, count(*) AS n FROM orders JOIN lineitem ON o_orderkey = l_orderkey "
    "WHERE l_shipmode = 'AIR' GROUP BY 1 ORDER BY 1",
    "SELECT count(*) AS n FROM lineitem WHERE l_comment LIKE '%special%'",
)
HITS = (
    "SELECT count(*) AS n FROM hits WHERE advertiser <> 0",
    "SELECT sum(advertiser) AS s, count(*) AS n, avg(width) AS w FROM hits",
    "SELECT avg(visitor) AS a FROM hits",
    "SELECT count(DISTINCT visitor) AS visitors FROM hits",
    "SELECT min(day) AS first, max(day) AS last FROM hits",
    "SELECT advertiser, count(*) AS n FROM hits WHERE advertiser <> 0 GROUP BY 1 ORDER BY n DESC",
    "SELECT region, count(DISTINCT visitor) AS visitors FROM hits GROUP BY 1 ORDER BY visitors DESC LIMIT 10",
    "SELECT region, sum(advertiser) AS s, count(*) AS n, avg(width) AS w FROM hits GROUP BY 1 "
    "ORDER BY n DESC LIMIT 10",
    "SELECT phrase, count(*) AS n FROM hits WHERE phrase <> '' GROUP BY 1 ORDER BY n DESC LIMIT 10",
    "SELECT engine, phrase, count(*) AS n FROM hits WHERE phrase <> '' GROUP BY 1, 2 "
    "ORDER BY n DESC LIMIT 10",
    "SELECT count(*) AS n FROM hits WHERE url LIKE '%77%'",
    "SELECT counter, avg(length(url)) AS l, count(*) AS c FROM hits WHERE url <> '' GROUP BY 1 "
    "HAVING count(*) > 100000 ORDER BY l DESC LIMIT 25",
    "SELECT day, count(*) AS views FROM hits WHERE counter = 62 GROUP BY day ORDER BY day",
    "SELECT date_trunc('hour', time) AS hour, count(*) AS n FROM hits WHERE day = DATE '2013-07-14' "
    "GROUP BY 1 ORDER BY 1",
    "SELECT is_refresh, approx_quantile(width, 0.5) AS half FROM hits GROUP BY 1",
)
QUESTIONS = {"flights": FLIGHTS, "babynames": BABYNAMES, "tpch": TPCH, "hits": HITS}
