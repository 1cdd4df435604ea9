SELECT avg(total) AS mean, max(n) AS most
FROM (SELECT g % 20 AS h, sum(x) AS total, count(*) AS n FROM one GROUP BY g % 20)
