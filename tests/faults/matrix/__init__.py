"""The fault matrix: every component is killed, frozen and cut off at every stage of an outage.

    python -m tests.faults.matrix --minutes 30 [--seed 7] [--run 3] [--cell primary/kill/filling]

Senders, two namespaces and a syphon, each in processes of their own, talk through relays of ours.
One run goes through a whole outage with a fault at each stage; `plan.py` says which. In the end
every message is looked for by its id (rule X1), and what is there twice is explained (rule X2).
"""
