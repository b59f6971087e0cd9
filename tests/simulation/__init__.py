"""Deterministic simulation: the real code in one process, under virtual time, with a seed.

docs/explanation/simulation.md describes it. `tests.simulation.standard_library` must be installed
before anything of pairbus is imported; `tests.simulation.__main__` does so.
"""
