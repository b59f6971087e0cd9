"""Values of the message state, the annotation `x-opt-message-state` of peeked messages."""

from typing import Final

ACTIVE: Final = 0
DEFERRED: Final = 1
SCHEDULED: Final = 2
