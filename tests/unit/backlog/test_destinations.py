"""Totals of the backlog by destination."""

from pairbus.backlog.destinations import DestinationSummaries
from pairbus.backlog.message import BacklogMessage


def message(destination: str | None, enqueued_ms: int | None, size: int = 1) -> BacklogMessage:
    return BacklogMessage(
        queue="q", payload=b"x" * size, destination=destination, enqueued_ms=enqueued_ms
    )


def test_messages_are_summed_up_by_destination_largest_first() -> None:
    summaries = DestinationSummaries()
    summaries.add([message("a", 5, 10), message(None, None), message("b", 3)])
    summaries.add([message("b", 2, 4)])

    totals = [
        (summary.destination, summary.messages, summary.bytes, summary.oldest_ms)
        for summary in summaries.largest_first()
    ]
    assert totals == [("b", 2, 5, 2), (None, 1, 1, None), ("a", 1, 10, 5)]
    assert (summaries.messages, summaries.without_destination) == (4, 1)
