"""The recovery of a path while its pairing is closed: decisions, without I/O."""

from types import SimpleNamespace
from typing import Any

import pytest

from pairbus.pairing.backlog_peeks import BacklogPeeks, PeekStart
from pairbus.pairing.effects import CallSdk
from pairbus.pairing.recovery import peek_backlog

QUEUES = ("one/x-servicebus-transfer/0", "one/x-servicebus-transfer/1")


@pytest.mark.rule("S14")
def test_round_of_peeks_ends_when_the_pairing_is_closed() -> None:
    primary = SimpleNamespace(down=False)
    start = PeekStart(held=False, marked=False, idle=True, sends=0)
    pairing: Any = SimpleNamespace(
        primary=primary, operation_timeout_s=60.0, peek_begins=lambda path: start
    )
    factory: Any = SimpleNamespace(backlog_receiver=lambda queue: object(), usage=None)
    receivers: dict[str, Any] = {}
    peeks = peek_backlog(
        pairing,
        factory,
        SimpleNamespace(),
        BacklogPeeks(QUEUES, 5.0),
        receivers,  # type: ignore[arg-type]
    )
    assert isinstance(next(peeks), CallSdk)
    assert list(receivers) == [QUEUES[0]]

    primary.down = True
    with pytest.raises(StopIteration):
        peeks.send([])

    assert list(receivers) == [QUEUES[0]]
