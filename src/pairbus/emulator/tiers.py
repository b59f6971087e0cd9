"""The tiers of a namespace: the limits that Service Bus has, and throttling. Without I/O.

| tier | message | batch | throttled beyond | idle links and connections |
| --- | --- | --- | --- | --- |
| standard | 256 KB | 256 KB | 1 000 credits a second | ended |
| premium | 1 MB, or 100 MB by entity | 1 MB | 4 MB/s for each messaging unit | ended |
| unlimited | 256 KB, or 100 MB by entity | as a message | never | kept |
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from types import MappingProxyType

from pairbus.emulator.entities.descriptions import (
    EntityDescription,
    SubscriptionDescription,
    max_message_size,
    with_settings,
)
from pairbus.errors import Busy, ConfigurationError
from pairbus.servicebus.limits import (
    BYTES_PER_SECOND_PREMIUM,
    CONNECTION_IDLE_TIMEOUT_S,
    CREDITS_PER_SECOND_STANDARD,
    DEFAULT_MESSAGE_KB_PREMIUM,
    KB,
    LINK_IDLE_TIMEOUT_S,
    MAX_BATCH_SIZE_PREMIUM,
    MAX_MESSAGE_KB_PREMIUM,
    MAX_MESSAGE_KB_STANDARD,
    THROTTLED,
)

SECOND_MS = 1000
MIN_WAIT_S = 2
"""The service asks a client that it throttles to wait at least this long."""

CREDITS: Mapping[str, int] = MappingProxyType(
    {"send": 1, "schedule": 1, "receive": 1, "peek": 1, "management": 10}
)
"""Credits of a metered operation. Settling and renewing cost none."""
_INCOMING = frozenset({"send", "schedule"})
_OUTGOING = frozenset({"receive", "peek"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceTier:
    """The limits of a namespace. None means no limit."""

    name: str
    default_message_kb: int = MAX_MESSAGE_KB_STANDARD
    """Size of a message if its entity does not say."""
    max_message_kb: int = MAX_MESSAGE_KB_PREMIUM
    max_batch_size: int | None = None
    """Bytes of a batch. None: as for a single message."""
    credits_per_second: int | None = None
    bytes_per_second: int | None = None
    """In each direction."""
    is_strict: bool = True
    """Entities refuse batches that are larger than a message may be, and partitioned entities
    those that belong to several partitions."""
    link_idle_timeout: timedelta | None = timedelta(seconds=LINK_IDLE_TIMEOUT_S)
    detach_idle_receivers: bool = False
    """A receiver that has granted credit and gets no message is idle too."""
    connection_idle_timeout: timedelta | None = timedelta(seconds=CONNECTION_IDLE_TIMEOUT_S)
    """Of a connection without a link to an entity."""

    @property
    def is_throttled(self) -> bool:
        return self.credits_per_second is not None or self.bytes_per_second is not None

    def complete(self, description: EntityDescription) -> EntityDescription:
        """Return the description of a new or changed entity, with the default of this tier.

        Raises ConfigurationError if the tier does not allow messages of this size.
        """
        if isinstance(description, SubscriptionDescription):
            return description
        kilobytes = description.max_message_size_in_kilobytes
        if kilobytes > self.max_message_kb:
            raise ConfigurationError(
                f"MaxMessageSizeInKilobytes of {description.path!r} is {kilobytes}. In the tier "
                f"{self.name} the maximum is {self.max_message_kb}."
            )
        if kilobytes == MAX_MESSAGE_KB_STANDARD < self.default_message_kb:
            # An older version may have allowed a name that is not allowed now.
            return with_settings(description, max_message_size_in_kilobytes=self.default_message_kb)
        return description

    def message_limit(self, description: EntityDescription) -> int:
        """Return the largest size of a message for an entity, in bytes."""
        return min(max_message_size(description), self.max_message_kb * KB)

    def batch_limit(self, description: EntityDescription) -> int:
        """Return the largest size of a batch for an entity, in bytes."""
        limit = self.message_limit(description)
        return limit if self.max_batch_size is None else min(limit, self.max_batch_size)


STANDARD = NamespaceTier(
    name="standard",
    max_message_kb=MAX_MESSAGE_KB_STANDARD,
    credits_per_second=CREDITS_PER_SECOND_STANDARD,
)
PREMIUM = NamespaceTier(
    name="premium",
    default_message_kb=DEFAULT_MESSAGE_KB_PREMIUM,
    max_batch_size=MAX_BATCH_SIZE_PREMIUM,
    bytes_per_second=BYTES_PER_SECOND_PREMIUM,
)
UNLIMITED = NamespaceTier(
    name="unlimited",
    is_strict=False,
    link_idle_timeout=None,
    connection_idle_timeout=None,
)
TIERS: Mapping[str, NamespaceTier] = MappingProxyType(
    {tier.name: tier for tier in (STANDARD, PREMIUM, UNLIMITED)}
)


def tier_of(tier: NamespaceTier | str, messaging_units: int = 1) -> NamespaceTier:
    """Return the tier of a name, with the throughput of these messaging units.

    Raises ConfigurationError.
    """
    if isinstance(tier, str):
        if tier.lower() not in TIERS:
            raise ConfigurationError(f"{tier!r} is not a tier. The tiers are {', '.join(TIERS)}.")
        tier = TIERS[tier.lower()]
    if messaging_units == 1:
        return tier
    if messaging_units < 1 or tier.bytes_per_second is None:
        raise ConfigurationError(
            f"Messaging units are for the tier {PREMIUM.name}, and at least 1; "
            f"not {messaging_units} for {tier.name}."
        )
    return replace(tier, bytes_per_second=messaging_units * tier.bytes_per_second)


class TokenBucket:
    """Tokens that are granted at the start of each second and are lost at its end.

    An operation is admitted while there is a token left, and may take more than that. What it took
    too much is missing in the following seconds.
    """

    def __init__(self, tokens_per_second: int) -> None:
        self._tokens_per_second = tokens_per_second
        self._tokens = tokens_per_second
        self._second: int | None = None

    def available(self, now_ms: int) -> int:
        """Return the tokens that are left. 0 or less means that nothing is admitted."""
        second = now_ms // SECOND_MS
        if self._second is None or second < self._second:  # the first call, or the clock was set
            self._second = second
        elif second > self._second:
            granted = (second - self._second) * self._tokens_per_second
            self._tokens = min(self._tokens_per_second, self._tokens + granted)
            self._second = second
        return self._tokens

    def take(self, tokens: int) -> None:
        """Take tokens for an operation that was admitted."""
        self._tokens -= tokens

    @property
    def wait_s(self) -> int:
        """Seconds until something is admitted again."""
        return 0 if self._tokens > 0 else -self._tokens // self._tokens_per_second + 1


class Throttle:
    """The throughput of a namespace: admits operations, and counts what they use."""

    def __init__(self, namespace: str, tier: NamespaceTier, now_ms: Callable[[], int]) -> None:
        self._namespace = namespace
        self._now_ms = now_ms
        self._counts_credits = tier.credits_per_second is not None
        self._buckets: dict[str, TokenBucket] = {}
        if tier.credits_per_second is not None:
            self._buckets = dict.fromkeys(CREDITS, TokenBucket(tier.credits_per_second))
        elif tier.bytes_per_second is not None:
            for kinds in (_INCOMING, _OUTGOING):
                self._buckets |= dict.fromkeys(kinds, TokenBucket(tier.bytes_per_second))

    def is_exhausted(self, kind: str) -> bool:
        """Return True if operations of this kind are throttled now."""
        bucket = self._buckets.get(kind)
        return bucket is not None and bucket.available(self._now_ms()) <= 0

    def max_messages(self, kind: str, limit: int) -> int:
        """Return how many messages may be delivered now, at most `limit`."""
        if self.is_exhausted(kind):
            return 0
        if self._counts_credits:
            return min(limit, self._buckets[kind].available(self._now_ms()))
        return limit

    def admit(self, kind: str) -> None:
        """Raise Busy if operations of this kind are throttled now."""
        if self.is_exhausted(kind):
            raise self.error(kind)

    def error(self, kind: str) -> Busy:
        """Return the error of a throttled operation, in the words of the service."""
        wait_s = max(MIN_WAIT_S, self._buckets[kind].wait_s)
        return Busy(
            f"The request was terminated because the namespace {self._namespace} is being "
            f"throttled. Error code : {THROTTLED}. Please wait {wait_s} seconds and try again. "
            "To know more visit https://aka.ms/sbResourceMgrExceptions and "
            "https://aka.ms/ServiceBusThrottling"
        )

    def count(self, kind: str, size: int) -> None:
        """Count an operation on a message of this size."""
        bucket = self._buckets.get(kind)
        if bucket is not None:
            bucket.take(CREDITS[kind] if self._counts_credits else size)

    def count_filters(self, evaluations: int) -> None:
        """Count evaluations of a topic's filters, which cost a credit each."""
        if self._counts_credits:
            self._buckets["send"].take(evaluations)
