"""The system properties of a message, which rules read as `sys.Name`.

Names are case-insensitive. The names that newer SDKs use for three of them are accepted too:
`sys.Subject` is `sys.Label`.
"""

from datetime import datetime, timedelta

from pairbus.servicebus.limits import MAX_ID_LENGTH

SETTABLE: dict[str, type] = {
    "ContentType": str,
    "CorrelationId": str,
    "ForcePersistence": bool,
    "Label": str,
    "MessageId": str,
    "PartitionKey": str,
    "ReplyTo": str,
    "ReplyToSessionId": str,
    "ScheduledEnqueueTimeUtc": datetime,
    "SessionId": str,
    "TimeToLive": timedelta,
    "To": str,
    "ViaPartitionKey": str,
}
"""Properties that an action can set, as a sender can, with the type of their values."""

READ_ONLY = (
    "DeadLetterSource",
    "DeliveryCount",
    "EnqueuedSequenceNumber",
    "EnqueuedTimeUtc",
    "ExpiresAtUtc",
    "LockedUntilUtc",
    "LockToken",
    "SequenceNumber",
    "Size",
    "State",
)

SYSTEM_PROPERTIES = (*SETTABLE, *READ_ONLY)

MAX_LENGTH = dict.fromkeys(
    ("MessageId", "PartitionKey", "SessionId", "ViaPartitionKey"), MAX_ID_LENGTH
)
"""The service refuses longer values of these."""

_ALIASES = {
    "subject": "Label",
    "scheduledenqueuetime": "ScheduledEnqueueTimeUtc",
    "transactionpartitionkey": "ViaPartitionKey",
}
_BY_NAME = {name.lower(): name for name in SYSTEM_PROPERTIES} | _ALIASES


def system_name(name: str) -> str | None:
    """Return the exact name of a system property, or None if there is no such property."""
    return _BY_NAME.get(name.lower())
