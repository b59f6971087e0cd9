"""The process whose instructions are counted: `benchmarks.hot_paths.guard` runs it under callgrind.

It prints a line of JSON with the paths, waits for a line, and calls each path once, in this order.
"""

import gc
import json
import logging
import os
import sys
from contextlib import ExitStack

from benchmarks.counted_sender import CountedCall, wait_for_line
from benchmarks.hot_paths.drain import restore_and_forward
from benchmarks.hot_paths.emulator import emulator_paths
from benchmarks.hot_paths.path import reference
from benchmarks.hot_paths.sends import send_paths

WARM_UPS = 2


def main() -> None:
    logging.disable(logging.CRITICAL)  # a namespace is killed
    with ExitStack() as stack:
        paths = [
            reference(),
            *stack.enter_context(send_paths()),
            *stack.enter_context(emulator_paths()),
            restore_and_forward(),
        ]
        for path in paths * WARM_UPS:  # fills caches, and lets the interpreter specialize its code
            path.work()
        gc.collect()
        gc.disable()
        print(json.dumps([[path.name, path.messages, path.baseline] for path in paths]), flush=True)
        wait_for_line()
        for path in paths:
            dir(CountedCall(path.work))
        sys.stdout.flush()
        os._exit(0)  # the peers of the senders do not answer, so closing would take long


if __name__ == "__main__":
    main()
