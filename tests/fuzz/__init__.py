"""A fuzzer: whatever the bytes, a defined error or a clean close, in bounded work and memory.

    python -m tests.fuzz --seconds 600

Inputs are valid conversations of two engines with something changed, frames with absurd fields, and
noise. What is checked stands in `checks.py` and `audit.py`; a failure is made small and printed.
"""
