"""The dead-letter queues that a command works on, and where their messages belong. No I/O."""

from dataclasses import dataclass, field, replace

from pairbus.amqp.client import ClientOptions
from pairbus.amqp.decode import decode_whole
from pairbus.amqp.section_edit import EncodedKeys, extract_entries, read_fields
from pairbus.amqp.sections import GROUP_ID, TTL, Message
from pairbus.backlog.dead_letter_message import restore_backlog_dead_letter, restore_dead_letter
from pairbus.backlog.message import BacklogMessage, read_message
from pairbus.errors import ConfigurationError, DecodeError
from pairbus.servicebus.application_properties import PATH_ALIAS
from pairbus.servicebus.entity_paths import DEAD_LETTER_QUEUE, SUBSCRIPTIONS, dead_letter_path
from pairbus.spark.messages import ReceivedMessage, RestoredMessage, sequence_number_of

_PATH_KEYS = EncodedKeys((PATH_ALIAS,))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterSource:
    """Dead-letter queues of some entities of one namespace: backlog queues, or other queues and
    subscriptions."""

    namespace: ClientOptions = field(repr=False)
    entities: tuple[str, ...]
    """The paths of the entities, without `/$DeadLetterQueue`."""
    in_backlog: bool = False
    """True for backlog queues, whose messages name their destinations."""
    target: ClientOptions | None = field(default=None, repr=False)
    """The namespace of the destinations. None: that of the entities, or for backlog queues an
    unknown one."""
    to: str | None = None
    """A queue or topic that gets the messages instead of their own destinations."""
    ignore_duplicate_detection: bool = False
    """Return messages to their own queue or topic without a check of its duplicate detection."""

    def __post_init__(self) -> None:
        entities = tuple(map(entity_of, self.entities))
        object.__setattr__(self, "entities", entities)
        if not all(entities):
            raise ConfigurationError("An entity path is empty. Use a path such as orders.")
        if self.to is not None and not self.to.strip("/ "):
            raise ConfigurationError("The destination is empty. Use a path such as orders.")
        if self.to is not None and topic_of(self.to) is not None:
            raise ConfigurationError(
                f"{self.to!r} is a subscription, and messages cannot be sent to a subscription. "
                "Use the path of a queue or topic."
            )

    @property
    def target_namespace(self) -> ClientOptions:
        """The namespace of the destinations. Raises ConfigurationError if it is unknown."""
        if self.target is not None:
            return self.target
        if self.in_backlog:
            raise ConfigurationError(
                "The primary is unknown, and dead letters of the backlog belong there. Add "
                "--primary."
            )
        return self.namespace

    def require_destinations(self) -> None:
        """Raise ConfigurationError if it is unknown where the messages belong."""
        self.target_namespace  # noqa: B018  raises
        for entity in self.entities:
            topic = None if self.in_backlog or self.to is not None else topic_of(entity)
            if topic is not None:
                raise ConfigurationError(
                    f"Messages cannot be sent to the subscription {entity!r} alone. Add --to "
                    f"{topic}, with which every matching subscription of the topic gets them "
                    "again, or --to another queue."
                )

    def destination_of(self, entity: str) -> str | None:
        """Return the destination of the dead letters of an entity outside the backlog, or None if
        it is not known."""
        if self.to is not None:
            return self.to
        return entity if topic_of(entity) is None else None

    def read(self, entity: str, payload: bytes) -> BacklogMessage:
        """Read a dead letter that was peeked, for display. Never raises."""
        message = read_message(entity, payload)
        if self.in_backlog:
            return message if self.to is None else replace(message, destination=self.to)
        session, ttl = _session_and_ttl(payload)
        return replace(
            message,
            destination=self.destination_of(entity) or topic_of(entity),
            session_id=session,
            time_to_live_ms=ttl,
            problem=None,
            problem_description=None,
        )

    def read_briefly(self, entity: str, payload: bytes) -> BacklogMessage:
        """Read the sequence number and the destination of a dead letter that was peeked, which is
        four times as fast as `read`. Never raises."""
        number = sequence_number_of(payload)
        if not self.in_backlog:
            destination = self.destination_of(entity) or topic_of(entity)
        else:
            destination = self.to or _backlog_destination(payload)
        if not number:  # an unusual encoding
            return self.read(entity, payload)
        return BacklogMessage(
            queue=entity, payload=payload, sequence_number=number, destination=destination
        )

    def restore(self, entity: str, received: ReceivedMessage) -> RestoredMessage:
        """Return a dead letter as it was sent, with its destination, or with a problem if it cannot
        be restored."""
        if self.in_backlog:
            return restore_backlog_dead_letter(received, self.to)
        return restore_dead_letter(received, self.destination_of(entity))

    def queue_of(self, entity: str) -> str:
        """Return the path of the dead-letter queue of an entity."""
        return dead_letter_path(entity)


def entity_of(path: str) -> str:
    """Return the path of an entity, also if that of its dead-letter queue is given."""
    path = path.strip().strip("/")
    suffix = f"/{DEAD_LETTER_QUEUE}"
    return path[: -len(suffix)] if path.lower().endswith(suffix.lower()) else path


def topic_of(entity: str) -> str | None:
    """Return the path of the topic of a subscription, or None for the path of a queue or topic."""
    segments = entity.split("/")
    if len(segments) >= 3 and segments[-2].lower() == SUBSCRIPTIONS.lower():
        return "/".join(segments[:-2])
    return None


def _backlog_destination(payload: bytes) -> str | None:
    try:
        section = Message.parse(payload).application_properties
        _, _, entries = extract_entries(section, _PATH_KEYS)
        value = decode_whole(entries[PATH_ALIAS]) if entries else None
    except DecodeError:
        return None
    return value if type(value) is str else None


def _session_and_ttl(payload: bytes) -> tuple[str | None, int | None]:
    try:
        message = Message.parse(payload)
        (session,) = read_fields(message.properties, (GROUP_ID,))
        (ttl,) = read_fields(message.header, (TTL,))
    except DecodeError:
        return None, None
    return (
        session if isinstance(session, str) else None,
        int(ttl) if isinstance(ttl, int) else None,
    )
