"""The outcomes of the messages of one call, and the error that reports them. No I/O."""

from collections.abc import Callable, Sequence

from pairbus.errors import MessageOutcome, PartlyStored, SendOutcome, SendUnavailable
from pairbus.pairing.payloads import Payloads

SHOWN = 5
"""The number of messages of each outcome that the text of an error names."""


class CallOutcomes:
    """The outcomes of the messages of one call so far, by their positions."""

    def __init__(self, messages: Payloads) -> None:
        self._messages = messages
        self.stored: set[int] = set()
        """The messages that a backlog queue accepted."""
        self.queues: set[str] = set()
        """The backlog queues that accepted messages."""
        self.transferred: set[int] = set()
        """The messages that were transferred without an answer, at least once. One that was sent
        again and then accepted is stored."""

    @property
    def nothing_sent(self) -> bool:
        """True if it is certain that no message of the call is in a queue."""
        return not self.stored and not self.transferred

    def error(
        self,
        path: str,
        reason: str,
        *,
        primary_error: BaseException | None = None,
        backlog_error: BaseException | None = None,
    ) -> SendUnavailable:
        """Return the error that reports the outcome of each message."""
        messages = tuple(
            MessageOutcome(position, message_id, self._outcome(position))
            for position, message_id in enumerate(self._messages.ids())
        )
        kind = PartlyStored if self.stored else SendUnavailable
        return kind(
            describe(path, messages, reason),
            messages=messages,
            primary_error=primary_error,
            backlog_error=backlog_error,
        )

    def _outcome(self, position: int) -> SendOutcome:
        if position in self.stored:
            return SendOutcome.STORED
        return SendOutcome.UNKNOWN if position in self.transferred else SendOutcome.NOT_SENT


def describe(path: str, messages: Sequence[MessageOutcome], reason: str) -> str:
    """Return the text of an error. `reason` is a clause, without a full stop."""
    if not messages:
        return f"The call for {path!r} failed: {reason}. Retry later."
    if len(messages) == 1:
        return _describe_one(path, messages[0], reason)
    stored, not_sent, unknown = (
        [message for message in messages if message.outcome is outcome]
        for outcome in (SendOutcome.STORED, SendOutcome.NOT_SENT, SendOutcome.UNKNOWN)
    )
    if len(not_sent) == len(messages):
        return f"Nothing was sent to {path!r} ({len(messages)} messages): {reason}. Retry later."
    verb = "is" if len(stored) == 1 else "are"
    count = f"{len(stored)} of {len(messages)} messages"
    text = f"{count} for {path!r} {verb} known to be stored: {reason}."
    for heading, group, name in (
        ("Stored", stored, _position),
        ("Not sent", not_sent, _position),
        ("Not known whether sent", unknown, _position_and_id),
    ):
        if group:
            text += f" {heading}: {_positions(group, name)}."
    if unknown:
        text += " Send these again with the same message ids."
    return text


def _describe_one(path: str, message: MessageOutcome, reason: str) -> str:
    if message.outcome is SendOutcome.NOT_SENT:
        return f"The message for {path!r} was not sent: {reason}. Retry later."
    if message.message_id is None:
        return (
            f"It is not known whether the message for {path!r} was sent: {reason}. It has no "
            "message id, so that a second copy of it cannot be detected."
        )
    return (
        f"It is not known whether the message {message.message_id!r} for {path!r} was sent: "
        f"{reason}. Send it again with the same message id."
    )


def _positions(messages: Sequence[MessageOutcome], name: Callable[[MessageOutcome], str]) -> str:
    noun = "position" if len(messages) == 1 else "positions"
    text = f"{noun} {', '.join(map(name, messages[:SHOWN]))}"
    more = len(messages) - SHOWN
    return f"{text} and {more} more" if more > 0 else text


def _position(message: MessageOutcome) -> str:
    return str(message.position)


def _position_and_id(message: MessageOutcome) -> str:
    if message.message_id is None:
        return f"{message.position} (without an id)"
    return f"{message.position} ({message.message_id!r})"
