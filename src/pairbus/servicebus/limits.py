"""Limits of Service Bus, per tier where they differ, and the unit that operations are billed in."""

from typing import Final

KB: Final = 1024
MB: Final = 1024 * KB

BILLING_UNIT: Final = 64 * KB
"""An operation on a message is billed once for every 64 KB or part of it."""

MAX_MESSAGE_KB_STANDARD: Final = 256
MAX_MESSAGE_KB_PREMIUM: Final = 100 * 1024
MAX_MESSAGE_SIZE_STANDARD: Final = MAX_MESSAGE_KB_STANDARD * KB
DEFAULT_MESSAGE_KB_PREMIUM: Final = 1024
MAX_BATCH_SIZE_PREMIUM: Final = MB
"""Of a batch. A single message may be larger."""
MAX_HEADER_SIZE: Final = 64 * KB
"""Everything of a message but its body."""
MAX_ID_LENGTH: Final = 128
"""Characters of a message id, a session id or a partition key."""

CREDITS_PER_SECOND_STANDARD: Final = 1000
"""Credits of a namespace. An operation on a message costs one, a management call ten."""
THROTTLED: Final = 50009
"""Error code of a request that a namespace throttles."""
BYTES_PER_SECOND_PREMIUM: Final = 4 * MB
"""About what a messaging unit receives, and what it delivers."""
LINK_IDLE_TIMEOUT_S: Final = 600
CONNECTION_IDLE_TIMEOUT_S: Final = 300
"""Without a link."""

MAX_PATH: Final = 260
"""Characters of the path of a queue or topic."""
MAX_NAME: Final = 50
"""Characters of the name of a subscription or rule."""
MAX_QUEUES: Final = 10_000
"""Queues and topics of a namespace."""
MAX_USER_METADATA: Final = 1024
MAX_AUTHORIZATION_RULES: Final = 12
MAX_DELIVERY_COUNT: Final = 2**31 - 1
MIN_LOCK_S: Final = 5
MAX_LOCK_S: Final = 300
MAX_FORWARDING_HOPS: Final = 4
MAX_PAGE_SIZE: Final = 100
"""Entries of one page of a list that the administration API returns."""
