"""Decisions about deliveries that a destination did not accept. No I/O.

A message is judged by the answer to its own transfer, sent alone. A batch that is rejected says
nothing about its messages, and neither does a link that is lost, because every delivery in flight
is lost with it.
"""

from enum import Enum, auto

from pairbus.errors import AmqpError, EntityNotFound, NotAuthorized, QuotaExceeded, Refused


class Failure(Enum):
    """The way in which a delivery failed."""

    REJECTED = auto()
    """The destination rejected this delivery."""
    LINK_LOST = auto()
    """The link ended before the delivery was answered. It may have been stored."""
    NOT_ATTACHED = auto()
    """The destination did not grant a link. Nothing was sent."""
    TOO_LARGE = auto()
    """The delivery is larger than the limit of the link. Nothing was sent."""


class Verdict(Enum):
    """The action for the messages of a delivery that failed."""

    DEAD_LETTER = auto()
    """The destination would refuse this message again."""
    SPLIT = auto()
    """Send the messages in two parts, each alone."""
    SEND_AGAIN = auto()
    """Send the same delivery again, alone on a new link."""
    LEAVE = auto()
    """The destination does not accept messages at the moment. They stay where they are."""
    MISSING = auto()
    """The destination does not exist. The messages stay where they are."""


def judge(
    failure: Failure, error: AmqpError, *, message_count: int, lost_before: bool = False
) -> Verdict:
    """Decide about a delivery of some messages. `lost_before`: the same delivery has lost its link
    before, and was then sent alone on a new one."""
    if isinstance(error, EntityNotFound):
        return Verdict.MISSING
    if failure is Failure.NOT_ATTACHED or not _is_refusal(error):
        return Verdict.LEAVE
    if failure is Failure.LINK_LOST and not lost_before:
        return Verdict.SEND_AGAIN
    return Verdict.DEAD_LETTER if message_count == 1 else Verdict.SPLIT


def _is_refusal(error: AmqpError) -> bool:
    """Return True if the same request would be refused again: not because of a missing right or a
    quota, which have nothing to do with the message."""
    return isinstance(error, Refused) and not isinstance(error, NotAuthorized | QuotaExceeded)
