SELECT g, corr(y, x) AS together, regr_slope(y, x) AS slope, skewness(x) AS skewed, kurtosis(x) AS peaked,
       skewness(ln(1 + x)) AS skewed_logs, stddev(x) AS spread, sem(x) AS sem
FROM one
GROUP BY g
