"""Benchmarks: the model zoo, the peers and the tables. Run from the root of the repository; not part of the wheel."""
