"""Which pairing is looked at; what its namespace says of a queue; how peeking goes on."""

from typing import Any

import pytest

from pairbus.backlog.counts import QueueCounts, read_counts, read_queue_page
from pairbus.backlog.destinations import DestinationSummaries
from pairbus.backlog.message import BacklogMessage
from pairbus.backlog.peek import peek
from pairbus.backlog.target import Target
from pairbus.errors import (
    AmqpError,
    ConfigurationError,
    EntityNotFound,
    NotAuthorized,
    ProtocolError,
    Unavailable,
)

ONE = "Endpoint=sb://one.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=c2VjcmV0"
TWO = ONE.replace("one.", "two.")
ENTRY = (
    b'<entry><content><QueueDescription xmlns="http://x"><SizeInBytes>512</SizeInBytes>'
    b'<MessageCount>9</MessageCount><CountDetails xmlns:d2p1="http://y">'
    b"<d2p1:ActiveMessageCount>5</d2p1:ActiveMessageCount>"
    b"<d2p1:DeadLetterMessageCount>4</d2p1:DeadLetterMessageCount>"
    b"<d2p1:TransferDeadLetterMessageCount>1</d2p1:TransferDeadLetterMessageCount>"
    b"</CountDetails></QueueDescription></content></entry>"
)


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


def test_counts_are_those_of_the_queue() -> None:
    assert read_counts("q", 200, ENTRY) == QueueCounts(messages=5, dead_lettered=4, size=512)


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (401, b"", NotAuthorized),
        (403, b"", NotAuthorized),
        (404, b"", EntityNotFound),
        (200, b"<feed></feed>", EntityNotFound),
        (503, b"", Unavailable),
        (500, ENTRY, Unavailable),
        (200, b"<QueueDescription></QueueDescription>", Unavailable),
        (200, ENTRY.replace(b">512<", b">many<"), Unavailable),
        (200, b"<html><p>not XML", Unavailable),
    ],
)
def test_an_answer_without_counts_says_why(
    status: int, body: bytes, error: type[AmqpError]
) -> None:
    with pytest.raises(error):
        read_counts("q", status, body)


FEED = (
    b'<feed xmlns="http://www.w3.org/2005/Atom"><title>Queues</title>'
    b'<link rel="self" href="https://x/"/>%b'
    b'<entry><id>https://x/a</id><title type="text">a&amp;b/c</title><content/></entry>'
    b"<entry><title>d</title></entry></feed>"
)


def test_page_of_queues_has_paths_and_says_whether_more_follow() -> None:
    last = read_queue_page(200, FEED % b"")
    other = read_queue_page(200, FEED % b'<link rel="next" href="https://x/?$skip=2"/>')

    assert (last.paths, last.more) == (["a&b/c", "d"], False)
    assert (other.paths, other.more) == (["a&b/c", "d"], True)
    assert read_queue_page(200, b"<feed/>") == ([], False)


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (401, b"", NotAuthorized),
        (403, b"", NotAuthorized),
        (404, b"", Unavailable),
        (503, b"", Unavailable),
        (200, b"<html/>", Unavailable),
        (200, b"not XML", Unavailable),
        (200, b"<feed><entry/></feed>", Unavailable),
    ],
)
def test_response_without_a_list_of_queues_is_an_error(
    status: int, body: bytes, error: type[AmqpError]
) -> None:
    with pytest.raises(error):
        read_queue_page(status, body)


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
