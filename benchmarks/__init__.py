"""Benchmarks, one module per subject. `python -m benchmarks` runs all of them."""
