SELECT g % 10 AS h, w, sum(x) AS total, count(*) AS n
FROM (SELECT * FROM one UNION ALL SELECT * FROM two)
GROUP BY ROLLUP (g % 10, w)
