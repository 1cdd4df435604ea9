SELECT a.h, a.total + b.total AS together
FROM (SELECT g % 50 AS h, sum(least(x, 100)) AS total FROM one GROUP BY g % 50) AS a
JOIN (SELECT g % 50 AS h, sum(least(x, 100)) AS total FROM two GROUP BY g % 50) AS b USING (h)
