"""A namespace in a process of its own: `python -m benchmarks.emulator_process FOLDER QUEUE…`.

Prints its connection string, and serves until its input ends.
"""

import sys

from pairbus.emulator.namespace import LocalNamespace


def main() -> None:
    folder, *queues = sys.argv[1:]
    with LocalNamespace("bench", folder=folder) as namespace:
        for queue in queues:
            namespace.create_queue(queue, max_size_in_megabytes=5120)
        print(namespace.connection_string, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
