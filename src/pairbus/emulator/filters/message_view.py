"""The properties of a message that rules can read."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from pairbus.emulator.filters.values import UNKNOWN


class MessageView(Protocol):
    """A message for the evaluation of rules."""

    @property
    def user(self) -> Mapping[str, Any]:
        """The application properties, with values of the types in `pairbus.amqp.types`."""

    def system(self, name: str) -> Any:
        """Return a property of `SYSTEM_PROPERTIES` by its exact name, or None if it is not set.

        Ids and addresses are strings, times are `Timestamp` or `datetime`, durations `timedelta`.
        """


def find_property(user: Mapping[str, Any], name: str, lowered: str) -> Any:
    """Return a user property by its name in any case, or UNKNOWN if there is none.

    A property with exactly this spelling comes first.
    """
    value = user.get(name, UNKNOWN)
    if value is UNKNOWN:
        key = find_key(user, lowered)
        return UNKNOWN if key is None else user[key]
    return value


def find_key(user: Mapping[str, Any], lowered: str) -> str | None:
    """Return the name of a property as the message spells it, or None if there is none."""
    # AMQP requires strings as keys, but a client may have sent other types.
    keys: Iterable[object] = user
    for key in keys:
        if isinstance(key, str) and key.lower() == lowered:
            return key
    return None
