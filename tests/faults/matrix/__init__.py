"""The fault matrix: every component is killed, frozen and disconnected at every stage of an outage.

    python -m tests.faults.matrix --minutes 30 [--seed 7] [--run 3] [--cell primary/kill/filling]

Senders, two namespaces, a syphon, a console and a redrive run as separate processes, connected
through relays. One run is a whole outage with a fault at each stage, chosen by `plan.py`, on a tier
that it chooses too. At the end every message is reconciled by its id (rule X1), every duplicate is
explained (rule X2), and with `after-drain` the order of each session is checked (rules S12, Y10).
"""
