"""The recorder of a redrive, for the forwarder of the syphon.

A dead letter cannot be dead-lettered again, so one that its destination refuses stays where it is.
"""

from pairbus.errors import AmqpError, EntityNotFound, NotAuthorized
from pairbus.spark.messages import RestoredMessage
from pairbus.spark.outcome import OutcomeRecorder
from pairbus.spark.settler import Settler
from pairbus.spark.usage import UsageRecorder


class RedriveRecorder(OutcomeRecorder):
    """Completes what was delivered, and collects everything else for the caller, still locked."""

    def __init__(self, settler: Settler, usage: UsageRecorder) -> None:
        super().__init__(settler, usage)
        self.accepted: list[RestoredMessage] = []
        self.refused: list[tuple[RestoredMessage, str]] = []
        """Messages with the reasons why they were refused."""
        self.not_sent: list[tuple[RestoredMessage, str | None]] = []
        """Messages to be tried again, with the errors of their destinations."""

    def delivered(self, destination: str, messages: list[RestoredMessage]) -> None:
        super().delivered(destination, messages)
        self.accepted += messages

    def dead_letter(self, message: RestoredMessage, reason: str, description: str) -> None:
        self.refused.append((message, f"{reason}: {description}"))

    def leave(
        self, destination: str, messages: list[RestoredMessage], error: AmqpError | None
    ) -> None:
        if isinstance(error, EntityNotFound | NotAuthorized):  # waiting would not help
            right = "" if isinstance(error, EntityNotFound) else " (the Send right is needed)"
            for message in messages:
                self.dead_letter(message, type(error).__name__, f"{error.description}{right}")
            return
        text = None if error is None else str(error)
        self.not_sent += [(message, text) for message in messages]
