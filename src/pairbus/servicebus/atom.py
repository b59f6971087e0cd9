"""Atom documents of the administration API, without I/O.

A client puts an `<entry>` whose content describes an entity, and gets one back that has also
counts and times. A list is a `<feed>` of entries, in pages. The service reads the elements of a
description in a fixed order, which is that of the settings below.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, NamedTuple, TypedDict
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from pairbus.errors import ConfigurationError, EntityNotFound, Refused, Unavailable
from pairbus.servicebus.entity_status import EntityStatus
from pairbus.servicebus.time_spans import format_time_span, parse_time_span
from pairbus.servicebus.xml_namespaces import ATOM, SERVICE

API_VERSION: Final = "2021-05"
QUEUES: Final = "$Resources/queues"
NAMESPACE: Final = "$namespaceinfo"

FORWARD_TO_TOKEN: Final = "ServiceBusSupplementaryAuthorization"
"""Header of a request that sets ForwardTo: a token for the target."""
FORWARD_DEAD_LETTERS_TOKEN: Final = "ServiceBusDlqSupplementaryAuthorization"
"""Header of a request that sets ForwardDeadLetteredMessagesTo: a token for the target."""

_READ_ONLY: Final = frozenset(
    {
        "SizeInBytes",
        "MessageCount",
        "IsAnonymousAccessible",
        "FilteringMessagesBeforePublishing",
        "CreatedAt",
        "UpdatedAt",
        "AccessedAt",
        "CountDetails",
        "SubscriptionCount",
        "SqlFilterCount",
        "CorrelationFilterCount",
        "EntityAvailabilityStatus",
    }
)


class NewQueueSettings(TypedDict, total=False):
    """Settings of a new queue. The service chooses the default of a setting that is left out."""

    lock_duration: timedelta
    max_size_in_megabytes: int
    requires_duplicate_detection: bool
    requires_session: bool
    default_message_time_to_live: timedelta
    dead_lettering_on_message_expiration: bool
    duplicate_detection_history_time_window: timedelta
    max_delivery_count: int
    enable_batched_operations: bool
    status: EntityStatus
    auto_delete_on_idle: timedelta


class NewTopicSettings(TypedDict, total=False):
    """Settings of a new topic. The service chooses the default of a setting that is left out."""

    default_message_time_to_live: timedelta
    max_size_in_megabytes: int
    requires_duplicate_detection: bool
    duplicate_detection_history_time_window: timedelta
    enable_batched_operations: bool
    status: EntityStatus
    auto_delete_on_idle: timedelta


class NewSubscriptionSettings(TypedDict, total=False):
    """Settings of a new subscription. The service chooses the default of a setting that is left
    out."""

    lock_duration: timedelta
    requires_session: bool
    default_message_time_to_live: timedelta
    dead_lettering_on_message_expiration: bool
    max_delivery_count: int
    enable_batched_operations: bool
    status: EntityStatus
    auto_delete_on_idle: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueProperties:
    """A queue that exists."""

    path: str
    status: str
    """Compare it with `EntityStatus`; the service has further values, such as `Creating`."""
    requires_session: bool
    requires_duplicate_detection: bool
    active_message_count: int
    """Messages that can be received, locked messages included."""
    dead_letter_message_count: int
    size_in_bytes: int
    """The size of all messages, dead-lettered messages included."""
    # None stands for a setting that the service did not return in a known form.
    lock_duration: timedelta | None = None
    max_size_in_megabytes: int | None = None
    default_message_time_to_live: timedelta | None = None
    dead_lettering_on_message_expiration: bool = False
    max_delivery_count: int | None = None
    max_message_size_in_kilobytes: int | None = None
    auto_delete_on_idle: timedelta | None = None
    enable_partitioning: bool = False
    forward_to: str | None = None
    duplicate_detection_window: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicProperties:
    """A topic that exists."""

    path: str
    status: str
    """Compare it with `EntityStatus`; the service has further values, such as `Creating`."""
    requires_duplicate_detection: bool
    duplicate_detection_window: timedelta | None = None


class QueuePage(NamedTuple):
    """One page of the list of queues."""

    queues: list[QueueProperties]
    more: bool
    """The response has a link to the next page."""


def write_queue(settings: NewQueueSettings) -> bytes:
    """Return the entry that creates a queue."""
    return _entry(_description("QueueDescription", NewQueueSettings, settings))


def write_topic(settings: NewTopicSettings) -> bytes:
    """Return the entry that creates a topic."""
    return _entry(_description("TopicDescription", NewTopicSettings, settings))


def write_subscription(settings: NewSubscriptionSettings) -> bytes:
    """Return the entry that creates a subscription."""
    return _entry(_description("SubscriptionDescription", NewSubscriptionSettings, settings))


def read_queue(path: str, body: bytes) -> QueueProperties:
    """Read the response to a GET of a queue. Raises EntityNotFound, Refused if the path is that of
    a topic, and Unavailable for anything else than a description."""
    return _queue(path, _description_at(path, "QueueDescription", body))


def read_topic(path: str, body: bytes) -> TopicProperties:
    """Read the response to a GET of a topic. Raises EntityNotFound, Refused if the path is that of
    a queue, and Unavailable for anything else than a description."""
    description = _description_at(path, "TopicDescription", body)
    return TopicProperties(
        path=path,
        status=_text(description, "Status") or EntityStatus.ACTIVE,
        requires_duplicate_detection=_flag(description, "RequiresDuplicateDetection"),
        duplicate_detection_window=_span_or_none(description, _DUPLICATE_WINDOW),
    )


def read_sku(body: bytes) -> str:
    """Return the tier of a namespace. Raises Unavailable if the body does not name one."""
    sku = (_text(_parse(body), "MessagingSKU") or "").strip()
    if not sku:
        raise Unavailable("the administration API returned a namespace without MessagingSKU")
    return sku


def read_queues(body: bytes) -> QueuePage:
    """Read a page of the list of queues. Raises Unavailable for anything else."""
    feed = _parse(body)
    if _local_name(feed) != "feed":
        raise Unavailable("the administration API returned no list of queues")
    queues = []
    for entry in _children(feed, "entry"):
        path = _text(entry, "title")
        description = _first(entry, "QueueDescription")
        if not path or description is None:
            raise Unavailable("the administration API listed a queue without path or description")
        queues.append(_queue(path, description))
    more = any(link.get("rel") == "next" for link in _children(feed, "link"))
    return QueuePage(queues, more)


class StatusUpdate(NamedTuple):
    """An entry that changes the status of an entity and nothing else."""

    body: bytes
    forwards: bool
    dead_letters_forward: bool


def replace_status(path: str, body: bytes, status: EntityStatus) -> StatusUpdate:
    """Turn the response to a GET of a queue or topic into an update of its status. Raises
    EntityNotFound, and Unavailable for anything else than a description."""
    description = _any_description(path, body)
    for element in list(description):
        if _local_name(element) in _READ_ONLY:
            description.remove(element)
    current = next(_children(description, "Status"), None)
    if current is None:
        raise Unavailable(f"the administration API returned {path!r} without a status")
    current.text = status
    return StatusUpdate(
        _entry(description),
        bool(_text(description, "ForwardTo")),
        bool(_text(description, "ForwardDeadLetteredMessagesTo")),
    )


def read_error(body: bytes) -> str:
    """Return the detail of an error response, or an empty string if it has none."""
    try:
        root = ElementTree.fromstring(body)
    except ElementTree.ParseError:
        return ""
    return (_text(root, "Detail") or "").strip()


def _description(kind: str, known: type, settings: Mapping[str, object]) -> Element:
    if unknown := settings.keys() - known.__annotations__.keys():
        raise TypeError(f"unknown settings of a {kind}: {', '.join(sorted(unknown))}")
    description = Element(f"{{{SERVICE}}}{kind}")
    for name in known.__annotations__:
        if name in settings:
            element = Element(f"{{{SERVICE}}}{property_name(name)}")
            element.text = property_text(settings[name])
            description.append(element)
    return description


def property_name(field_name: str) -> str:
    """Return the service's name of a setting: `LockDuration` for `lock_duration`."""
    return "".join([word.capitalize() for word in field_name.split("_")])


def property_text(value: object) -> str:
    """Return the value of a setting as the service writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return format_time_span(value) if isinstance(value, timedelta) else str(value)


def _entry(description: Element) -> bytes:
    # The type of an authorization rule is a qualified name without a prefix, so the namespace of
    # the service must be the default one inside the content.
    content = ElementTree.tostring(description, encoding="unicode", default_namespace=SERVICE)
    return (
        f'<entry xmlns="{ATOM}"><content type="application/xml">{content}</content></entry>'
    ).encode()


def _description_at(path: str, kind: str, body: bytes) -> Element:
    description = _any_description(path, body)
    if _local_name(description) != kind:
        actual, wanted = (
            name.removesuffix("Description").lower() for name in (_local_name(description), kind)
        )
        raise Refused(f"{path!r} is a {actual}, not a {wanted}")
    return description


def _any_description(path: str, body: bytes) -> Element:
    root = _parse(body)
    if _local_name(root) == "feed":  # the service's response for a path without an entity
        raise EntityNotFound(f"there is no queue or topic {path!r}")
    content = _first(root, "content")
    description = None if content is None else next(iter(content), None)
    if description is None or not _local_name(description).endswith("Description"):
        raise Unavailable(f"the administration API returned no description of {path!r}")
    return description


def _queue(path: str, description: Element) -> QueueProperties:
    return QueueProperties(
        path=path,
        status=_text(description, "Status") or EntityStatus.ACTIVE,
        requires_session=_flag(description, "RequiresSession"),
        requires_duplicate_detection=_flag(description, "RequiresDuplicateDetection"),
        active_message_count=_number(description, "ActiveMessageCount", path),
        dead_letter_message_count=_number(description, "DeadLetterMessageCount", path),
        size_in_bytes=_number(description, "SizeInBytes", path),
        lock_duration=_span_or_none(description, "LockDuration"),
        max_size_in_megabytes=_number_or_none(description, "MaxSizeInMegabytes"),
        default_message_time_to_live=_span_or_none(description, "DefaultMessageTimeToLive"),
        dead_lettering_on_message_expiration=_flag(description, "DeadLetteringOnMessageExpiration"),
        max_delivery_count=_number_or_none(description, "MaxDeliveryCount"),
        max_message_size_in_kilobytes=_number_or_none(description, "MaxMessageSizeInKilobytes"),
        auto_delete_on_idle=_span_or_none(description, "AutoDeleteOnIdle"),
        enable_partitioning=_flag(description, "EnablePartitioning"),
        forward_to=_text(description, "ForwardTo") or None,
        duplicate_detection_window=_span_or_none(description, _DUPLICATE_WINDOW),
    )


_DUPLICATE_WINDOW = "DuplicateDetectionHistoryTimeWindow"


def _parse(body: bytes) -> Element:
    try:
        return ElementTree.fromstring(body)
    except ElementTree.ParseError as exc:
        raise Unavailable(f"the administration API returned a body that is not XML: {exc}") from exc


def _children(parent: Element, name: str) -> Iterator[Element]:
    return (element for element in parent if _local_name(element) == name)


def _first(parent: Element, name: str) -> Element | None:
    """Return the first element of a name at any depth, in any XML namespace."""
    return next((element for element in parent.iter() if _local_name(element) == name), None)


def _text(parent: Element, name: str) -> str | None:
    element = _first(parent, name)
    return None if element is None else element.text


def _flag(parent: Element, name: str) -> bool:
    return (_text(parent, name) or "").strip().lower() == "true"


def _number(parent: Element, name: str, path: str) -> int:
    number = _number_or_none(parent, name)
    if number is None:
        raise Unavailable(f"the administration API returned {path!r} without {name}")
    return number


def _number_or_none(parent: Element, name: str) -> int | None:
    text = (_text(parent, name) or "").strip()
    return int(text) if text.isascii() and text.isdecimal() else None


def _span_or_none(parent: Element, name: str) -> timedelta | None:
    try:
        return parse_time_span(_text(parent, name) or "")
    except ConfigurationError:
        return None


def _local_name(element: Element) -> str:
    return element.tag.rpartition("}")[2]
