"""Message annotations of Service Bus.

The service writes some of them onto a message while it holds it. A copy of the message that is
sent elsewhere leaves these out (`SET_BY_SERVICE`).
"""

from typing import Final

ENQUEUED_TIME: Final = "x-opt-enqueued-time"
SEQUENCE_NUMBER: Final = "x-opt-sequence-number"
ENQUEUE_SEQUENCE_NUMBER: Final = "x-opt-enqueue-sequence-number"
LOCKED_UNTIL: Final = "x-opt-locked-until"
LOCK_TOKEN: Final = "x-opt-lock-token"
MESSAGE_STATE: Final = "x-opt-message-state"
PARTITION_ID: Final = "x-opt-partition-id"
SET_BY_SERVICE: Final = (
    ENQUEUED_TIME,
    SEQUENCE_NUMBER,
    ENQUEUE_SEQUENCE_NUMBER,
    LOCKED_UNTIL,
    LOCK_TOKEN,
    MESSAGE_STATE,
    PARTITION_ID,
)

SCHEDULED_ENQUEUE_TIME: Final = "x-opt-scheduled-enqueue-time"
PARTITION_KEY: Final = "x-opt-partition-key"
VIA_PARTITION_KEY: Final = "x-opt-via-partition-key"
DEAD_LETTER_SOURCE: Final = "x-opt-deadletter-source"
