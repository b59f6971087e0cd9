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

from pairbus.emulator.admin.atom_rules import rule_elements
from pairbus.emulator.admin.xml import element, escape_text
from pairbus.emulator.auth import Right, SharedAccessRule
from pairbus.emulator.entities.descriptions import (
    EntityDescription,
    SubscriptionDescription,
    TopicDescription,
    kind_of,
    property_name,
    setting_fields,
)
from pairbus.emulator.entities.runtime_properties import RuntimeProperties
from pairbus.emulator.filters.rules import Rule
from pairbus.servicebus.time_spans import format_time_span
from pairbus.servicebus.xml_namespaces import ATOM, COUNTS, INSTANCE, SERVICE

ENTRY_TYPE = "application/atom+xml;type=entry;charset=utf-8"
FEED_TYPE = "application/atom+xml;type=feed;charset=utf-8"
ERROR_TYPE = "application/xml; charset=utf-8"

API_VERSION = "2024-05"
"""The newest version of the API, which the SDK asks for."""
INTRODUCED_IN = {
    "max_message_size_in_kilobytes": "2021-05",
    "sql_filter_count": "2024-05",
    "correlation_filter_count": "2024-05",
}
"""What older versions of the API do not know: they neither show nor take it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiEndpoint:
    """Where answers come from: `https://localhost:5671`, and the version that was asked for."""

    namespace: str
    base_url: str
    api_version: str = API_VERSION

    def url(self, path: str, query: str = "") -> str:
        return f"{self.base_url}/{quote(path, safe='/$')}?{query}api-version={self.api_version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AtomEntry:
    """One entry, ready to be written alone or in a feed."""

    title: str
    path: str
    content: str
    updated_at: datetime
    published_at: datetime | None = None


def entity_entry(
    description: EntityDescription, runtime: RuntimeProperties, api_version: str = API_VERSION
) -> AtomEntry:
    """A queue, topic or subscription, as a version of the API shows it."""
    kind = kind_of(description)
    return AtomEntry(
        title=description.name,
        path=description.path,
        content=element(
            f"{kind}Description",
            *_settings(description, api_version),
            *_runtime(description, runtime, api_version),
            xmlns=SERVICE,
            xmlns_i=INSTANCE,
        ),
        updated_at=runtime.updated_at,
        published_at=runtime.created_at,
    )


def rule_entry(subscription_path: str, rule: Rule, created_at: datetime) -> AtomEntry:
    """A rule of a subscription."""
    return AtomEntry(
        title=rule.name,
        path=f"{subscription_path}/Rules/{rule.name}",
        content=element(
            "RuleDescription",
            *rule_elements(rule),
            element("CreatedAt", _moment(created_at)),
            element("Name", escape_text(rule.name)),
            xmlns=SERVICE,
            xmlns_i=INSTANCE,
        ),
        updated_at=created_at,
        published_at=created_at,
    )


def namespace_entry(site: ApiEndpoint, created_at: datetime) -> AtomEntry:
    """The namespace itself, as one of the Standard tier."""
    return AtomEntry(
        title=site.namespace,
        path="$namespaceinfo",
        content=element(
            "NamespaceInfo",
            element("CreatedTime", _moment(created_at)),
            element("MessagingSKU", "Standard"),
            element("ModifiedTime", _moment(created_at)),
            element("Name", escape_text(site.namespace)),
            element("NamespaceType", "Messaging"),
            xmlns=SERVICE,
            xmlns_i=INSTANCE,
        ),
        updated_at=created_at,
    )


def write_entry(entry: AtomEntry, site: ApiEndpoint) -> bytes:
    return _entry(entry, site, xmlns=ATOM).encode()


def write_feed(
    title: str,
    path: str,
    entries: Iterable[AtomEntry],
    site: ApiEndpoint,
    now: datetime,
    *,
    skip: int = 0,
    top: int = 100,
    more: bool = False,
) -> bytes:
    """A page of a list. Where there is more, it says where: the SDK takes the second link of a feed
    for the next page, and reads `$skip` and `$top` from it."""
    this = site.url(path, f"$skip={skip}&$top={top}&")
    links = [element("link", rel="self", href=this)]
    if more:
        after = site.url(path, f"$skip={skip + top}&$top={top}&")
        links.append(element("link", rel="next", href=after))
    head = [
        element("title", escape_text(title), type="text"),
        element("id", escape_text(this)),
        element("updated", _moment(now)),
    ]
    return element(
        "feed", *head, *links, *(_entry(one, site) for one in entries), xmlns=ATOM
    ).encode()


def write_error(status: int, detail: str) -> bytes:
    """The body of a refusal. The detail is what the SDK shows."""
    return element(
        "Error", element("Code", str(status)), element("Detail", escape_text(detail))
    ).encode()


def _entry(entry: AtomEntry, site: ApiEndpoint, **attributes: str) -> str:
    url = site.url(entry.path)
    published = entry.published_at
    return element(
        "entry",
        element("id", escape_text(url)),
        element("title", escape_text(entry.title), type="text"),
        *([element("published", _moment(published))] if published is not None else []),
        element("updated", _moment(entry.updated_at)),
        element("author", element("name", escape_text(site.namespace))),
        element("link", rel="self", href=url),
        element("content", entry.content, type="application/xml"),
        **attributes,
    )


def _settings(description: EntityDescription, api_version: str) -> Iterable[str]:
    for name, (field, _) in setting_fields(type(description)).items():
        if api_version < INTRODUCED_IN.get(field, ""):
            continue
        value = getattr(description, field)
        if field == "support_ordering" and value is None:
            value = not getattr(description, "enable_partitioning", False)
        if field == "authorization_rules":
            yield element(name, *(_access_rule(rule) for rule in value))
        elif value is not None:
            yield element(name, escape_text(_plain(value)))


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return format_time_span(value) if isinstance(value, timedelta) else str(value)


def _runtime(
    description: EntityDescription, runtime: RuntimeProperties, api_version: str
) -> Iterable[str]:
    counts = runtime.counts
    numbers: dict[str, int] = {}
    if not isinstance(description, SubscriptionDescription):
        numbers["size_in_bytes"] = runtime.size_in_bytes
        yield element("IsAnonymousAccessible", "false")
    if isinstance(description, TopicDescription):
        numbers["subscription_count"] = runtime.subscription_count
        numbers["sql_filter_count"] = runtime.sql_filter_count
        numbers["correlation_filter_count"] = runtime.correlation_filter_count
    else:
        numbers["message_count"] = counts.total
    for name, number in numbers.items():
        if api_version >= INTRODUCED_IN.get(name, ""):
            yield element(property_name(name), str(number))
    yield element("CreatedAt", _moment(runtime.created_at))
    yield element("UpdatedAt", _moment(runtime.updated_at))
    yield element("AccessedAt", _moment(runtime.accessed_at))
    yield element(
        "CountDetails",
        element("d2p1:ActiveMessageCount", str(counts.active)),
        element("d2p1:DeadLetterMessageCount", str(counts.dead_letter)),
        element("d2p1:ScheduledMessageCount", str(counts.scheduled)),
        element("d2p1:TransferMessageCount", str(counts.transfer)),
        element("d2p1:TransferDeadLetterMessageCount", str(counts.transfer_dead_letter)),
        xmlns_d2p1=COUNTS,
    )
    yield element("EntityAvailabilityStatus", "Available")


def _access_rule(rule: SharedAccessRule) -> str:
    second = rule.secondary_key
    return element(
        "AuthorizationRule",
        element("ClaimType", "SharedAccessKey"),
        element("ClaimValue", "None"),
        element(
            "Rights", *(element("AccessRights", right) for right in Right if right in rule.rights)
        ),
        *([element("CreatedTime", _moment(rule.created_at))] if rule.created_at else []),
        *([element("ModifiedTime", _moment(rule.modified_at))] if rule.modified_at else []),
        element("KeyName", escape_text(rule.name)),
        element("PrimaryKey", escape_text(rule.primary_key)),
        *([element("SecondaryKey", escape_text(second))] if second is not None else []),
        i_type="SharedAccessAuthorizationRule",
    )


def _moment(when: datetime | None) -> str:
    """A time as the service writes it; the year 1 where there was none."""
    if when is None:
        return "0001-01-01T00:00:00Z"
    return when.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
