"""Writes to a ledger as fast as it can, on a disk that takes a few bytes at a time, until it is
killed: `python -m tests.unit.cost.ledger_writer FOLDER`."""

import os
import sys

from pairbus.cost.ledger import Ledger
from pairbus.cost.operations import Kind, Part

_write = os.write


def in_pieces(fd: int, data: bytes) -> int:
    return _write(fd, bytes(data[:7]))


def main(folder: str) -> None:
    os.write = in_pieces
    ledger = Ledger(folder, writer="pairing", roll_bytes=4096)
    count = 0
    while True:
        count += 1
        ledger.add(namespace="n", entity=f"q{count}", kind=Kind.SEND, part=Part.TRAFFIC)
        ledger.flush()
        if count == 20:
            print("writing", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
