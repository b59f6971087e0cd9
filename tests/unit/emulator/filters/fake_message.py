"""A message with given properties, for tests of rules."""

from collections.abc import Mapping
from typing import Any

from pairbus.emulator.filters.system_properties import SYSTEM_PROPERTIES


class FakeMessage:
    """A `MessageView` of values: `FakeMessage({"color": "red"}, Label="a")`."""

    def __init__(self, user: Mapping[str, Any] | None = None, **system: Any) -> None:
        assert set(system) <= set(SYSTEM_PROPERTIES)
        self.user: Mapping[str, Any] = {} if user is None else user
        self._system = system

    def system(self, name: str) -> Any:
        assert name in SYSTEM_PROPERTIES
        return self._system.get(name)
