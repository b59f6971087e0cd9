"""The properties of a message that a rule reaches as `sys.Name`: the documented ones.

Names are matched without regard to case. The newer SDKs' names for three of them are taken too:
`sys.Subject` is `sys.Label`.
"""

from datetime import datetime, timedelta

from pairbus.servicebus.limits import MAX_ID_LENGTH

# What an action may set, with the type that the value is turned into: what a sender may set too.
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

# The service refuses longer values of these.
MAX_LENGTH = dict.fromkeys(
    ("MessageId", "PartitionKey", "SessionId", "ViaPartitionKey"), MAX_ID_LENGTH
)

_ALIASES = {
    "subject": "Label",
    "scheduledenqueuetime": "ScheduledEnqueueTimeUtc",
    "transactionpartitionkey": "ViaPartitionKey",
}
_BY_NAME = {name.lower(): name for name in SYSTEM_PROPERTIES} | _ALIASES


def system_name(name: str) -> str | None:
    """The property's own spelling, or None if a message has no such system property."""
    return _BY_NAME.get(name.lower())
