"""The rule for batches to partitioned entities: all messages must belong to one partition."""

from collections.abc import Sequence
from typing import Any

from pairbus.amqp.section_edit import read_fields
from pairbus.amqp.sections import GROUP_ID, MESSAGE_ID, Message
from pairbus.emulator.entities.descriptions import EntityDescription
from pairbus.emulator.entities.message_codec import IncomingMessage, partition_key
from pairbus.errors import Refused


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
    key = partition_key(message, session)
    if key is None and detects_duplicates and message_id is not None:
        return str(message_id)
    return key
