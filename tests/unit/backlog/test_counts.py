"""Message counts and queue lists, parsed from responses of the administration API."""

import pytest

from pairbus.backlog.counts import QueueCounts, read_counts, read_queue_page
from pairbus.errors import AmqpError, EntityNotFound, NotAuthorized, Unavailable

ENTRY = (
    b'<entry><content><QueueDescription xmlns="http://x"><SizeInBytes>512</SizeInBytes>'
    b'<MessageCount>9</MessageCount><CountDetails xmlns:d2p1="http://y">'
    b"<d2p1:ActiveMessageCount>5</d2p1:ActiveMessageCount>"
    b"<d2p1:DeadLetterMessageCount>4</d2p1:DeadLetterMessageCount>"
    b"<d2p1:TransferDeadLetterMessageCount>1</d2p1:TransferDeadLetterMessageCount>"
    b"</CountDetails></QueueDescription></content></entry>"
)


def test_counts_of_a_queue_are_read() -> None:
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
def test_response_without_counts_is_an_error(
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


def test_page_of_queues_has_paths_and_tells_if_more_follow() -> None:
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
