"""Benchmarks: one file a subject. `python -m benchmarks` runs them all."""
