"""Application properties with a meaning: of dead-lettered messages, and of messages in the backlog.

The aliases hold the properties that `pairbus.transfer` clears while a message is in the backlog.
"""

from typing import Final

DEAD_LETTER_REASON: Final = "DeadLetterReason"
DEAD_LETTER_DESCRIPTION: Final = "DeadLetterErrorDescription"

TTL_EXPIRED: Final = "TTLExpiredException"
"""The dead-letter reason of a message whose time-to-live has passed."""
MAX_DELIVERY_COUNT_EXCEEDED: Final = "MaxDeliveryCountExceeded"
"""The dead-letter reason of a message that was delivered too often without being completed."""
MAX_HOP_COUNT_EXCEEDED: Final = "MaxTransferHopCountExceeded"
"""The dead-letter reason of a message that was forwarded too often."""

SESSION_ALIAS: Final = "x-ms-sessionid"
TTL_ALIAS: Final = "x-ms-timetolive"
SCHEDULE_ALIAS: Final = "x-ms-scheduledenqueuetimeutc"
PATH_ALIAS: Final = "x-ms-path"
ALIASES: Final = (SESSION_ALIAS, TTL_ALIAS, SCHEDULE_ALIAS, PATH_ALIAS)
