WITH months AS (SELECT g, month(day) <= 6 AS first, sum(x) AS total, count(*) AS n FROM one GROUP BY g, month(day) <= 6)
SELECT a.g, a.total - b.total AS change, a.n - b.n AS rows_more, b.total / a.total AS ratio
FROM months AS a JOIN months AS b ON a.g = b.g AND a.first AND NOT b.first
