SELECT (SELECT count(*) FROM one WHERE y > 7) AS n,
       (SELECT sum(x) FROM one WHERE y < 3) AS total,
       (SELECT avg(y) FROM two WHERE x > 2) AS tame,
       (SELECT sum(least(x, 50)) FROM two) AS cut
