SELECT g, sum(x) / (SELECT sum(x) FROM one) AS of_total, 1.0 * count(*) / (SELECT count(*) FROM one WHERE y > 5) AS of_rows
FROM one
GROUP BY g
