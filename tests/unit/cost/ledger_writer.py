"""Writes to a ledger as fast as it can, on a disk that takes a few bytes at a time, until it is
killed: `python -m tests.unit.cost.ledger_writer FOLDER [halt]`. With `halt` it stops in the middle
of a record."""

import os
import signal
import sys

from pairbus.usage.ledger import Ledger
from pairbus.usage.operations import OperationKind, Part

MANY = 20
_write = os.write


def in_pieces(fd: int, data: bytes) -> int:
    return _write(fd, bytes(data[:7]))


def then_halt(fd: int, data: bytes) -> int:
    if len(data) < 50:  # what is left of a record
        print("halted", flush=True)
        signal.pause()
    return in_pieces(fd, data)


def main(folder: str, halt: bool) -> None:
    os.write = in_pieces
    ledger = Ledger(folder, writer="pairing", roll_bytes=4096)
    count = 0
    while True:
        count += 1
        ledger.add(namespace="n", entity=f"q{count}", kind=OperationKind.SEND, part=Part.TRAFFIC)
        ledger.flush()
        if count == MANY:
            if halt:
                os.write = then_halt
            else:
                print("writing", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:] == ["halt"])
