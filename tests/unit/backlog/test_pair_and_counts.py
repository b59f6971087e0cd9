"""The pairing that is inspected, the sums by destination, and the end of peeking."""

from typing import Any

import pytest

from pairbus.backlog.destinations import DestinationSummaries
from pairbus.backlog.message import BacklogMessage
from pairbus.backlog.peek import peek
from pairbus.backlog.target import Target
from pairbus.errors import (
    ConfigurationError,
    ProtocolError,
)

ONE = "Endpoint=sb://one.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=c2VjcmV0"
TWO = ONE.replace("one.", "two.")


def test_backlog_queues_have_the_name_of_the_primary() -> None:
    found = Target.of(primary=ONE, secondary=TWO, backlog_queue_count=2)

    assert found.backlog_queues == ("one/x-servicebus-transfer/0", "one/x-servicebus-transfer/1")
    assert found.queue("7") == "one/x-servicebus-transfer/7"
    assert found.queue("any/path") == "any/path"
    assert "c2VjcmV0" not in repr(found)


def test_without_a_primary_its_name_is_enough() -> None:
    found = Target.of(primary=None, secondary=TWO, primary_name="one", backlog_queue_count=1)

    assert found.backlog_queues == ("one/x-servicebus-transfer/0",)


@pytest.mark.parametrize(
    ("primary", "secondary", "options", "said"),
    [
        ("nonsense", TWO, {}, "primary: part 1 of the connection string"),
        (ONE, "Endpoint=", {}, "secondary: the connection string has no Endpoint"),
        (ONE, ONE, {}, "one namespace"),
        (ONE, ONE.replace(".net/", ".net:5671/"), {}, "one namespace"),
        (ONE, f"{TWO};EntityPath=q", {}, "is for 'q' only"),
        (ONE, TWO.replace("two.", "two.."), {}, "secondary: 'two..servicebus.* not the name of a"),
        (ONE, TWO.replace("two.", "t wo."), {}, "not the name of a host"),
        (ONE.replace("one.", f"{'x' * 70}."), TWO, {}, "primary: '.* not the name of a host"),
        (ONE, TWO, {"primary_name": "no such/name"}, "cannot name the primary"),
    ],
)
def test_a_pairing_that_cannot_be_is_one_sentence(
    primary: str, secondary: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        Target.of(primary=primary, secondary=secondary, **options)

    assert "c2VjcmV0" not in str(caught.value)


def test_a_host_without_a_name_gives_no_paths() -> None:
    nameless = Target.of(
        primary=ONE.replace("one.servicebus.windows.net", "localhost"), secondary=TWO
    )

    with pytest.raises(ConfigurationError, match="no name of its own"):
        _ = nameless.backlog_queues
    with pytest.raises(ConfigurationError, match="no name of its own"):
        nameless.queue("0")
    assert nameless.queue("a/path") == "a/path"


def message(destination: str | None, enqueued_ms: int | None, size: int = 1) -> BacklogMessage:
    return BacklogMessage(
        queue="q", payload=b"x" * size, destination=destination, enqueued_ms=enqueued_ms
    )


def test_heaps_add_up_by_destination_the_largest_first() -> None:
    heaps = DestinationSummaries()
    heaps.add([message("a", 5, 10), message(None, None), message("b", 3)])
    heaps.add([message("b", 2, 4)])

    found = [(h.destination, h.messages, h.bytes, h.oldest_ms) for h in heaps.largest_first()]
    assert found == [("b", 2, 5, 2), (None, 1, 1, None), ("a", 1, 10, 5)]
    assert (heaps.messages, heaps.none) == (4, 1)


class Nonsense:
    """A namespace whose messages have no sequence numbers."""

    asked = 0

    def __init__(self, *_: object) -> None: ...

    def peek(self, start: int, count: int) -> list[bytes]:
        Nonsense.asked += 1
        return [b"nonsense"] * count

    def close(self) -> None: ...


def test_messages_without_numbers_are_no_endless_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pairbus.backlog.peek.Management", Nonsense)
    client: Any = None

    lots = peek(client, "q")
    assert len(next(lots)) == 250
    with pytest.raises(ProtocolError, match="without sequence numbers"):
        next(lots)
    assert Nonsense.asked == 1
