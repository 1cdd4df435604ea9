"""The training algorithms, one file each, and the mathematics that several of them share."""
