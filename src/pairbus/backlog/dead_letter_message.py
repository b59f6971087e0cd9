"""Dead letters as they were before they were dead-lettered. No I/O.

The service adds to a message while it holds it: annotations, a delivery count, and for a dead
letter the application properties DeadLetterReason and DeadLetterErrorDescription and the annotation
x-opt-deadletter-source. All of these are removed. Everything else keeps its bytes.
"""

from pairbus.amqp.section_edit import (
    HEADER,
    PROPERTIES,
    EncodedKeys,
    map_entries,
    read_fields,
    replace_fields,
)
from pairbus.amqp.sections import (
    ABSOLUTE_EXPIRY_TIME,
    DELIVERY_COUNT,
    GROUP_ID,
    TTL,
    Message,
)
from pairbus.backlog.message import NOT_A_MESSAGE
from pairbus.errors import DecodeError, NotTransferable
from pairbus.servicebus.annotations import DEAD_LETTER_SOURCE, SET_BY_SERVICE
from pairbus.servicebus.application_properties import (
    DEAD_LETTER_DESCRIPTION,
    DEAD_LETTER_REASON,
    PATH_ALIAS,
)
from pairbus.spark.messages import ReceivedMessage, RestoredMessage
from pairbus.transfer import from_backlog

_REASON_KEYS = EncodedKeys((DEAD_LETTER_REASON, DEAD_LETTER_DESCRIPTION))
_ANNOTATION_KEYS = EncodedKeys((*SET_BY_SERVICE, DEAD_LETTER_SOURCE))
_SOURCE_KEYS = EncodedKeys((DEAD_LETTER_SOURCE,))
_NULL = b"\x40"


def restore_dead_letter(received: ReceivedMessage, destination: str | None) -> RestoredMessage:
    """Return a dead letter of a queue or subscription as it was sent to it, to be sent to
    `destination`. None: there is no destination."""
    problem = description = session_id = None
    payload = received.payload
    try:
        message = Message.parse(payload)
        _remove_dead_letter_fields(message, _ANNOTATION_KEYS)
        _restore_header(message)
        (session_id,) = read_fields(message.properties, (GROUP_ID,))
        payload = message.encode()
    except DecodeError as exc:
        problem, description = NOT_A_MESSAGE, exc.description
    session_id = session_id if isinstance(session_id, str) else None
    return received.restored(payload, destination, session_id, problem, description)


def restore_backlog_dead_letter(
    received: ReceivedMessage, destination: str | None
) -> RestoredMessage:
    """Return a dead letter of a backlog queue as its sender sent it. `destination`, if it is given,
    replaces the destination that the message names."""
    problem = description = session_id = None
    payload, path = received.payload, destination
    try:
        message = Message.parse(payload)
        _remove_dead_letter_fields(message, _SOURCE_KEYS)
        if destination is not None:
            message.edit_application_properties({PATH_ALIAS: destination})
        restored = from_backlog(message.encode())
        payload, path, session_id = restored.payload, restored.path, restored.session
    except NotTransferable as exc:
        problem, description = exc.reason, str(exc)
    except DecodeError as exc:
        problem, description = NOT_A_MESSAGE, exc.description
    return received.restored(payload, path, session_id, problem, description)


def _remove_dead_letter_fields(message: Message, annotations: EncodedKeys) -> None:
    # Delivery annotations are for one hop. With that of the forwarding hops, the message could soon
    # be dead-lettered for too many of them.
    message.delivery_annotations = b""
    if message.application_properties:
        message.edit_application_properties({}, _REASON_KEYS)
    if message.message_annotations:
        message.edit_message_annotations({}, annotations)


def _restore_header(message: Message) -> None:
    """Remove the delivery count and, for a message with a time-to-live, the times that the SDK
    derives from it when it sends: the time-to-live starts anew."""
    (ttl,) = read_fields(message.header, (TTL,))
    if ttl:
        message.properties = replace_fields(
            message.properties, PROPERTIES, ABSOLUTE_EXPIRY_TIME, (_NULL, _NULL)
        )
    if message.header:
        header = replace_fields(message.header, HEADER, DELIVERY_COUNT, (_NULL,))
        message.header = header if map_entries(header)[1].strip(_NULL) else b""
