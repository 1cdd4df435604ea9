SELECT g, sum(x) AS total, count(*) AS n
FROM (SELECT g, x FROM one UNION ALL SELECT g, x FROM two)
GROUP BY g
