"""The status of a queue, topic or subscription."""

from enum import StrEnum


class EntityStatus(StrEnum):
    """The operations that an entity allows."""

    ACTIVE = "Active"
    DISABLED = "Disabled"
    RECEIVE_DISABLED = "ReceiveDisabled"
    SEND_DISABLED = "SendDisabled"

    @property
    def allows_sending(self) -> bool:
        """True if the entity accepts messages."""
        return self in (EntityStatus.ACTIVE, EntityStatus.RECEIVE_DISABLED)

    @property
    def allows_receiving(self) -> bool:
        """True if messages can be received from the entity."""
        return self in (EntityStatus.ACTIVE, EntityStatus.SEND_DISABLED)
