WITH t AS (SELECT g % 20 AS h, sum(x) FILTER (WHERE w = 3) AS part, sum(x) AS total FROM one GROUP BY g % 20)
SELECT h, CASE WHEN total > 0 THEN part / total ELSE NULL END AS share FROM t
