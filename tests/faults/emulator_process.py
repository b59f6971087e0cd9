"""A namespace in a process of its own: `python emulator_process.py FOLDER`.

Prints its connection string when it serves, and runs until it is killed or its input ends.
"""

import logging
import sys

from pairbus.emulator.namespace import LocalNamespace

logging.basicConfig(level=logging.ERROR)
with LocalNamespace(folder=sys.argv[1]) as namespace:
    print(namespace.connection_string, flush=True)
    sys.stdin.read()
