"""Benchmarks: each pairs ours with its reference in one run and prints a ratio."""
