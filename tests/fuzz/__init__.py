"""A fuzzer for the AMQP engine and codec, built on Hypothesis.

    python -m tests.fuzz --seconds 600

Whatever data arrives, the engine must return a defined error or close the connection, with bounded
work and memory. Inputs are recorded conversations between two engines with changes, frames with
invalid fields, and random bytes (`inputs.py`). `checks.py` and `output_check.py` hold the
properties. Hypothesis reduces a failing input to a minimal one.
"""
