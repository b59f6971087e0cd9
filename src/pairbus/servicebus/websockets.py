"""Names of AMQP over WebSockets, as the service and its clients use them."""

from typing import Final

WEBSOCKET_PATH: Final = "/$servicebus/websocket"
SERVICE_SUBPROTOCOL: Final = "AMQPWSB10"
"""The subprotocol that the SDKs of the service ask for. It is from a draft of the standard."""
STANDARD_SUBPROTOCOL: Final = "amqp"
"""The subprotocol of the standard, OASIS AMQP WebSocket Binding 1.0."""
