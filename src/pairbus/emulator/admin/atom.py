"""What clients get from the management API: Atom entries and feeds, and errors.

A client puts an `<entry>` with a description and gets one back, with what is known at run time; a
list is a `<feed>` of entries, in pages, and an error is an `<Error>`. Elements have the names that
the service gives them; clients look for them by name, so they stand in an order of our own.

| status | body | what the SDK raises |
| --- | --- | --- |
| 200, 201 | entry or feed | |
| 200 | a feed, where an entry was asked for | ResourceNotFoundError, as the service has it |
| 401 | error | ClientAuthenticationError |
| 404 | error | ResourceNotFoundError |
| 409 | error | ResourceExistsError |
| 400, 403, others | error | HttpResponseError, with the detail as its message |
| 408, 429, 500, 502, 503, 504 | error | the same, after retries |
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

from pairbus.emulator.admin.atom_rules import rule_content
from pairbus.emulator.admin.xml import ATOM, COUNTS, INSTANCE, SERVICE, tag, text
from pairbus.emulator.auth import Right, SharedAccessRule
from pairbus.emulator.entities.descriptions import (
    Description,
    SubscriptionDescription,
    TopicDescription,
    kind_of,
    property_name,
    settings_of,
)
from pairbus.emulator.filters.rules import Rule
from pairbus.servicebus.time_spans import format_time_span

ENTRY_TYPE = "application/atom+xml;type=entry;charset=utf-8"
FEED_TYPE = "application/atom+xml;type=feed;charset=utf-8"
ERROR_TYPE = "application/xml; charset=utf-8"

API_VERSION = "2024-05"
"""The newest version of the API, which the SDK asks for."""
SINCE = {
    "max_message_size_in_kilobytes": "2021-05",
    "sql_filter_count": "2024-05",
    "correlation_filter_count": "2024-05",
}
"""What older versions of the API do not know: they neither show nor take it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageCounts:
    """How many messages an entity holds, by what they wait for."""

    active: int = 0
    dead_letter: int = 0
    scheduled: int = 0
    transfer: int = 0
    transfer_dead_letter: int = 0

    @property
    def total(self) -> int:
        waiting = self.active + self.dead_letter + self.scheduled
        return waiting + self.transfer + self.transfer_dead_letter


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """What is known of an entity at run time. Times are aware."""

    created_at: datetime
    updated_at: datetime
    accessed_at: datetime | None = None
    size_in_bytes: int = 0
    counts: MessageCounts = MessageCounts()
    subscription_count: int = 0
    sql_filter_count: int = 0
    correlation_filter_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AtomSite:
    """Where answers come from: `https://localhost:5671`, and the version that was asked for."""

    namespace: str
    base: str
    api_version: str = API_VERSION

    def url(self, path: str, query: str = "") -> str:
        return f"{self.base}/{quote(path, safe='/$')}?{query}api-version={self.api_version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry, ready to be written alone or in a feed."""

    title: str
    path: str
    content: str
    updated_at: datetime
    published_at: datetime | None = None


def entity_entry(
    description: Description, runtime: Runtime, api_version: str = API_VERSION
) -> Entry:
    """A queue, topic or subscription, as a version of the API shows it."""
    kind = kind_of(description)
    return Entry(
        title=description.name,
        path=description.path,
        content=tag(
            f"{kind}Description",
            *_settings(description, api_version),
            *_runtime(description, runtime, api_version),
            xmlns=SERVICE,
            xmlns_i=INSTANCE,
        ),
        updated_at=runtime.updated_at,
        published_at=runtime.created_at,
    )


def rule_entry(subscription_path: str, rule: Rule, created_at: datetime) -> Entry:
    """A rule of a subscription."""
    return Entry(
        title=rule.name,
        path=f"{subscription_path}/Rules/{rule.name}",
        content=tag(
            "RuleDescription",
            *rule_content(rule),
            tag("CreatedAt", _moment(created_at)),
            tag("Name", text(rule.name)),
            xmlns=SERVICE,
            xmlns_i=INSTANCE,
        ),
        updated_at=created_at,
        published_at=created_at,
    )


def namespace_entry(site: AtomSite, created_at: datetime) -> Entry:
    """The namespace itself, as one of the Standard tier."""
    return Entry(
        title=site.namespace,
        path="$namespaceinfo",
        content=tag(
            "NamespaceInfo",
            tag("CreatedTime", _moment(created_at)),
            tag("MessagingSKU", "Standard"),
            tag("ModifiedTime", _moment(created_at)),
            tag("Name", text(site.namespace)),
            tag("NamespaceType", "Messaging"),
            xmlns=SERVICE,
            xmlns_i=INSTANCE,
        ),
        updated_at=created_at,
    )


def write_entry(entry: Entry, site: AtomSite) -> bytes:
    return _entry(entry, site, xmlns=ATOM).encode()


def write_feed(
    title: str,
    path: str,
    entries: Iterable[Entry],
    site: AtomSite,
    now: datetime,
    *,
    skip: int = 0,
    top: int = 100,
    more: bool = False,
) -> bytes:
    """A page of a list. Where there is more, it says where: the SDK takes the second link of a feed
    for the next page, and reads `$skip` and `$top` from it."""
    this = site.url(path, f"$skip={skip}&$top={top}&")
    links = [tag("link", rel="self", href=this)]
    if more:
        after = site.url(path, f"$skip={skip + top}&$top={top}&")
        links.append(tag("link", rel="next", href=after))
    head = [
        tag("title", text(title), type="text"),
        tag("id", text(this)),
        tag("updated", _moment(now)),
    ]
    return tag("feed", *head, *links, *(_entry(one, site) for one in entries), xmlns=ATOM).encode()


def write_error(status: int, detail: str) -> bytes:
    """The body of a refusal. The detail is what the SDK shows."""
    return tag("Error", tag("Code", str(status)), tag("Detail", text(detail))).encode()


def _entry(entry: Entry, site: AtomSite, **attributes: str) -> str:
    url = site.url(entry.path)
    published = entry.published_at
    return tag(
        "entry",
        tag("id", text(url)),
        tag("title", text(entry.title), type="text"),
        *([tag("published", _moment(published))] if published is not None else []),
        tag("updated", _moment(entry.updated_at)),
        tag("author", tag("name", text(site.namespace))),
        tag("link", rel="self", href=url),
        tag("content", entry.content, type="application/xml"),
        **attributes,
    )


def _settings(description: Description, api_version: str) -> Iterable[str]:
    for name, (field, _) in settings_of(type(description)).items():
        if api_version < SINCE.get(field, ""):
            continue
        value = getattr(description, field)
        if field == "support_ordering" and value is None:
            value = not getattr(description, "enable_partitioning", False)
        if field == "authorization_rules":
            yield tag(name, *(_access_rule(rule) for rule in value))
        elif value is not None:
            yield tag(name, text(_plain(value)))


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return format_time_span(value) if isinstance(value, timedelta) else str(value)


def _runtime(description: Description, runtime: Runtime, api_version: str) -> Iterable[str]:
    counts = runtime.counts
    numbers: dict[str, int] = {}
    if not isinstance(description, SubscriptionDescription):
        numbers["size_in_bytes"] = runtime.size_in_bytes
        yield tag("IsAnonymousAccessible", "false")
    if isinstance(description, TopicDescription):
        numbers["subscription_count"] = runtime.subscription_count
        numbers["sql_filter_count"] = runtime.sql_filter_count
        numbers["correlation_filter_count"] = runtime.correlation_filter_count
    else:
        numbers["message_count"] = counts.total
    for name, number in numbers.items():
        if api_version >= SINCE.get(name, ""):
            yield tag(property_name(name), str(number))
    yield tag("CreatedAt", _moment(runtime.created_at))
    yield tag("UpdatedAt", _moment(runtime.updated_at))
    yield tag("AccessedAt", _moment(runtime.accessed_at))
    yield tag(
        "CountDetails",
        tag("d2p1:ActiveMessageCount", str(counts.active)),
        tag("d2p1:DeadLetterMessageCount", str(counts.dead_letter)),
        tag("d2p1:ScheduledMessageCount", str(counts.scheduled)),
        tag("d2p1:TransferMessageCount", str(counts.transfer)),
        tag("d2p1:TransferDeadLetterMessageCount", str(counts.transfer_dead_letter)),
        xmlns_d2p1=COUNTS,
    )
    yield tag("EntityAvailabilityStatus", "Available")


def _access_rule(rule: SharedAccessRule) -> str:
    second = rule.secondary_key
    return tag(
        "AuthorizationRule",
        tag("ClaimType", "SharedAccessKey"),
        tag("ClaimValue", "None"),
        tag("Rights", *(tag("AccessRights", right) for right in Right if right in rule.rights)),
        *([tag("CreatedTime", _moment(rule.created_at))] if rule.created_at else []),
        *([tag("ModifiedTime", _moment(rule.modified_at))] if rule.modified_at else []),
        tag("KeyName", text(rule.name)),
        tag("PrimaryKey", text(rule.primary_key)),
        *([tag("SecondaryKey", text(second))] if second is not None else []),
        i_type="SharedAccessAuthorizationRule",
    )


def _moment(when: datetime | None) -> str:
    """A time as the service writes it; the year 1 where there was none."""
    if when is None:
        return "0001-01-01T00:00:00Z"
    return when.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
