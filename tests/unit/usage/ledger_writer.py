"""Write to a ledger until killed, on a disk that accepts a few bytes per write.

Usage: python -m tests.unit.usage.ledger_writer FOLDER [halt]

With `halt` the process stops within a record, and waits to be killed there.
"""

import os
import signal
import sys

from pairbus.usage.ledger import Ledger
from pairbus.usage.operations import OperationKind, Purpose

RECORDS_BEFORE_REPORT = 20
BYTES_PER_WRITE = 7
_write = os.write


def write_few_bytes(fd: int, data: bytes) -> int:
    return _write(fd, bytes(data[:BYTES_PER_WRITE]))


def write_then_halt(fd: int, data: bytes) -> int:
    if len(data) < 50:  # The rest of a record: a whole one is longer.
        print("halted", flush=True)
        signal.pause()
    return write_few_bytes(fd, data)


def main(folder: str, halt: bool) -> None:
    os.write = write_few_bytes
    ledger = Ledger(folder, writer="pairing", max_file_bytes=4096)
    count = 0
    while True:
        count += 1
        ledger.add(
            namespace="n", entity=f"q{count}", kind=OperationKind.SEND, purpose=Purpose.TRAFFIC
        )
        ledger.flush()
        if count == RECORDS_BEFORE_REPORT:
            if halt:
                os.write = write_then_halt
            else:
                print("writing", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:] == ["halt"])
