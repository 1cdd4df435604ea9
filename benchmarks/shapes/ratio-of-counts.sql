SELECT (SELECT count(*) FROM one WHERE y > 9) * 1.0 / (SELECT count(*) FROM one WHERE y < 2) AS ratio
