SELECT w, sum(CASE WHEN dayofweek(day) = 0 THEN x ELSE 0 END) AS sundays,
       sum(CASE WHEN dayofweek(day) = 1 THEN x ELSE 0 END) AS mondays,
       count(*) FILTER (WHERE dayofweek(day) = 2) AS tuesdays
FROM one
GROUP BY w
