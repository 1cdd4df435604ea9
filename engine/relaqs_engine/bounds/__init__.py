"""What is provable of a SQL expression's values, from the smallest and largest value of each column.

Example: a column between 2 and 5 makes `3 * x` lie between 6 and 15.
"""
