"""The rule for batches to partitioned entities: all messages must belong to one partition."""

from collections.abc import Sequence
from typing import Any

from pairbus.amqp.section_edit import read_fields
from pairbus.amqp.sections import GROUP_ID, MESSAGE_ID, Message
from pairbus.amqp.types import Symbol
from pairbus.emulator.entities.descriptions import EntityDescription
from pairbus.emulator.entities.message_codec import IncomingMessage
from pairbus.errors import Refused
from pairbus.servicebus import annotations

_PARTITION_KEY = Symbol(annotations.PARTITION_KEY)


def check_partition(
    description: EntityDescription, batch: bytes, messages: Sequence[IncomingMessage]
) -> None:
    """Raise Refused if a partitioned entity cannot store a batch in one partition.

    The key of a message is its session id, else its partition key, and with duplicate detection
    else its message id. The service selects the partition by the keys of the batch's own sections.
    """
    if not getattr(description, "enable_partitioning", False):
        return
    detects_duplicates = bool(getattr(description, "requires_duplicate_detection", False))
    keys = {
        _key(message.sections, message.session, message.message_id, detects_duplicates)
        for message in messages
    }
    if len(keys) > 1:
        also_ids = ", or MessageId " if detects_duplicates else ""
        reason = " and duplicate detection" if detects_duplicates else ""
        raise Refused(
            f"Batching brokered messages with distinct SessionId, PartitionKey{also_ids} is not "
            f"supported for an entity with partitioning{reason} enabled."
        )
    if detects_duplicates:
        envelope = Message.parse(batch)
        message_id, session = read_fields(envelope.properties, (MESSAGE_ID, GROUP_ID))
        if _key(envelope, session, message_id, detects_duplicates) is None:
            raise Refused(
                "Message to a partitioned entity with duplicate detection enabled must have either "
                "PartitionKey or MessageId"
            )


def _key(message: Message, session: Any, message_id: Any, detects_duplicates: bool) -> Any:
    if session is not None:
        return session
    if message.message_annotations:
        partition_key = message.read_message_annotations().get(_PARTITION_KEY)
        if partition_key is not None:
            return partition_key
    return str(message_id) if detects_duplicates and message_id is not None else None
