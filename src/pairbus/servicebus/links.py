"""Link properties and source filters of Service Bus. Each is an AMQP symbol on the wire."""

from typing import Final

TIMEOUT: Final = "com.microsoft:timeout"
"""Property of an attach: the client's timeout, in milliseconds."""
MAX_MESSAGE_BATCH_SIZE: Final = "com.microsoft:max-message-batch-size"
"""Property of the attach of a sender's peer: the largest batch that the entity takes, in bytes."""
LOCKED_UNTIL: Final = "com.microsoft:locked-until-utc"
"""Property of the attach of a session receiver's peer: the end of the session lock, in ticks."""
SESSION_FILTER: Final = "com.microsoft:session-filter"
"""Filter of a session receiver: the session id, or null for any session."""
