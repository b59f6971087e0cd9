"""The fault matrix: every component is killed, frozen and disconnected at every stage of an outage.

    python -m tests.faults.matrix --minutes 30 [--seed 7] [--run 3] [--cell primary/kill/filling]

Senders, two namespaces and a syphon run as separate processes, connected through relays.
One run is a whole outage with a fault at each stage, chosen by `plan.py`. At the end every message
is reconciled by its id (rule X1), and every duplicate is explained (rule X2).
"""
