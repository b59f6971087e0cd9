"""The locks of messages that a redrive keeps for a while."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from pairbus.amqp.client import ClientOptions
from pairbus.errors import AmqpError
from pairbus.spark.connections import management_for
from pairbus.spark.messages import RestoredMessage
from pairbus.spark.settler import MAX_TOKENS
from pairbus.spark.usage import UsageRecorder
from pairbus.usage.operations import OperationKind

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class LockedMessage:
    """A message that was received and is not settled yet."""

    number: int
    message: RestoredMessage
    renew_ms: int
    """The time at which its lock is renewed: when half of it is over."""


class LockRenewal:
    """Renews the locks of messages of one queue."""

    def __init__(
        self,
        namespace: ClientOptions,
        queue: str,
        entity: str,
        usage: UsageRecorder,
        now_ms: Callable[[], int],
    ) -> None:
        self._namespace = namespace
        self._queue = queue
        self._entity = entity
        self._usage = usage
        self._now_ms = now_ms

    def renew(self, kept: dict[int, LockedMessage]) -> None:
        """Renew locks of which half of the time is over. Remove messages whose locks are lost: they
        are delivered again."""
        now_ms = self._now_ms()
        due = [locked for locked in kept.values() if locked.renew_ms <= now_ms]
        for start in range(0, len(due), MAX_TOKENS):
            part = due[start : start + MAX_TOKENS]
            for locked, until_ms in zip(part, self._renew(part), strict=True):
                if until_ms is None:
                    kept.pop(locked.number, None)
                else:
                    locked.message = locked.message._replace(locked_until=until_ms)
                    locked.renew_ms = (now_ms + until_ms) // 2

    def _renew(self, part: list[LockedMessage]) -> list[int | None]:
        tokens = [
            locked.message.lock_token for locked in part if locked.message.lock_token is not None
        ]
        entities = [self._entity] * len(part)
        try:
            expirations = management_for(self._namespace, self._queue).renew_locks(tokens)
        except AmqpError as exc:
            logger.info("%s: %d locks could not be renewed: %s", self._queue, len(part), exc)
            self._usage.add_settlements(OperationKind.RENEW, entities, answered=False)
            return [None] * len(part)
        self._usage.add_settlements(OperationKind.RENEW, entities)
        return [int(expiration) for expiration in expirations]
