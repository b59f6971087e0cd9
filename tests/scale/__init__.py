"""Thousands of sender processes on two namespaces with credits, in virtual time.

    python -m tests.scale        # writes benchmarks/scale.json; scripts/scale_plot.py draws it

The decisions are those of the package: the state and the recovery of a pairing, the rate control of
the syphon, and the credits of the emulator. What they act on is a model: a queue is a list of
numbers, a call takes a fixed time, and no byte is sent.
"""
