WITH a AS (SELECT g, sum(x) AS total, count(*) AS n FROM one GROUP BY g),
     b AS (SELECT g, sum(x) AS total, count(*) AS n FROM two GROUP BY g)
SELECT g, a.total / b.total AS totals, 1.0 * a.n / b.n AS counts
FROM a JOIN b USING (g)
