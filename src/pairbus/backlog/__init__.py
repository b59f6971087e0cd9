"""Inspection of a pairing and its backlog, without Spark. Nothing is received, locked or moved.

Backlog queues are created in `pairing/backlog_queues.py`.
"""
