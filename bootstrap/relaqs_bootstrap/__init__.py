"""Error bars: totals, variances, replicates, intervals. Arrays in, arrays out; numpy and scipy only."""
