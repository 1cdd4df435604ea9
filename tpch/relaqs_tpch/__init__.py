"""TPC-H: data made on the machine, the 22 queries, and the benchmark over them."""
