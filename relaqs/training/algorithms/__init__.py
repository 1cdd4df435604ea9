"""The training algorithms, one file a family, with the mathematics that its members share."""
