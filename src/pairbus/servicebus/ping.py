"""The ping: an empty message that tests whether an entity accepts messages.

A namespace that knows the content type accepts a ping and does not store it.
"""

from typing import Final

PING_CONTENT_TYPE: Final = "application/vnd.ms-servicebus-ping"
