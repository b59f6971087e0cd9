"""What a rule sees of a message: its application properties, and those that the emulator knows."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from pairbus.emulator.filters.values import UNKNOWN


class MessageView(Protocol):
    """A message, for rules."""

    @property
    def user(self) -> Mapping[str, Any]:
        """The application properties, values in the types of `pairbus.amqp.types`."""

    def system(self, name: str) -> Any:
        """A property of `SYSTEM_PROPERTIES` by its own spelling, None if it is not set.

        Ids and addresses are text, times are `Timestamp` or `datetime`, durations `timedelta`.
        """


def find_property(user: Mapping[str, Any], name: str, lowered: str) -> Any:
    """A user property without regard to case, UNKNOWN if there is none. One of exactly this
    spelling comes first."""
    value = user.get(name, UNKNOWN)
    if value is UNKNOWN:
        key = find_key(user, lowered)
        return UNKNOWN if key is None else user[key]
    return value


def find_key(user: Mapping[str, Any], lowered: str) -> str | None:
    """How the message spells a property, None if it has none of this name."""
    # AMQP wants strings as keys; a peer may have sent something else.
    keys: Iterable[object] = user
    for key in keys:
        if isinstance(key, str) and key.lower() == lowered:
            return key
    return None
