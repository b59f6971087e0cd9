"""The operation that opens links to the backlog in advance: decisions, without I/O."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from pairbus.events import PathStatus
from pairbus.pairing.effects import CallSdk, Discard
from pairbus.pairing.sdk import LinkLimits
from pairbus.pairing.standby_links import open_standby_links

QUEUE = "one/x-servicebus-transfer/0"
LIMITS = LinkLimits(1024, 1024)


class FakeLinks:
    """The links of one paired sender."""

    closed = False

    def __init__(self) -> None:
        self.standby: dict[str, Any] = {}
        self.factory = SimpleNamespace(
            backlog_sender=lambda queue: object(), note_message_limit=lambda queue, size: None
        )

    def has_backlog_link(self, queue: str) -> bool:
        return queue in self.standby


class FakeClaim(nullcontext[None]):
    queue = QUEUE
    is_trial = False


@pytest.mark.rule("S14")
def test_link_is_discarded_that_was_opened_twice_at_the_same_time() -> None:
    """The path becomes healthy and suspect again while the first operation still connects."""
    pairing: Any = SimpleNamespace(
        primary=SimpleNamespace(down=False),
        operation_timeout_s=60.0,
        backlog=SimpleNamespace(claim_any=lambda path, links: FakeClaim()),
    )
    path: Any = SimpleNamespace(health=SimpleNamespace(status=PathStatus.SUSPECT))
    links: Any = FakeLinks()
    first, second = (open_standby_links(pairing, path, lambda: [links]) for _ in range(2))
    calls = [next(first), next(second)]
    assert all(isinstance(call, CallSdk) for call in calls)

    with pytest.raises(StopIteration):
        first.send(LIMITS)
    effect = second.send(LIMITS)

    assert isinstance(effect, Discard)
    assert isinstance(calls[0], CallSdk)
    assert isinstance(calls[1], CallSdk)
    assert links.standby == {QUEUE: calls[0].link}
    assert effect.link is calls[1].link
