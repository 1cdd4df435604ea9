SELECT kind, month(day) AS m, sum(y) AS tame, sum(x) AS total
FROM (SELECT 'one' AS kind, * FROM one UNION ALL SELECT 'two', * FROM two)
GROUP BY kind, month(day)
