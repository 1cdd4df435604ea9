SELECT g, avg(x) AS mean, avg(y) AS tame, avg(least(x, 100)) AS cut
FROM (SELECT * FROM one UNION ALL SELECT * FROM two)
GROUP BY g
