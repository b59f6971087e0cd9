"""Faults on demand: what a namespace does wrong, where, how often; and how often it really did.

| kind | what happens |
| --- | --- |
| refuse-connections | a connection is closed as soon as it is made |
| cut | the connection is cut when a message arrives, before it is stored |
| lose-answer | messages are stored, the answer is not given, and the connection is cut |
| answer-late | messages are stored, the answer comes `seconds` later |
| throttle | messages are rejected with `com.microsoft:server-busy` |
| internal-error | messages are rejected with `amqp:internal-error` |
| detach | the link is detached when a message arrives, before it is stored |
| stop-reading | nothing more is read from a connection on which a message arrives |
| expire-tokens | links end as if their tokens had expired, without grace |
| ignore-tokens | a token that is put on `$cbs` is not taken, and there is no answer |
| refuse-tokens | a token that is put on `$cbs` is not taken; the answer has `status` |
| disable | the entity acts as if it were disabled, for sending and receiving |

Messages that are scheduled over the management link of an entity arrive like those that are sent
to it: all of one request are one occasion. They are rejected with a response: status 503 for
throttle, 500 for internal-error, 400 for disable, and the condition. The link that is detached is
the one that brings requests. Other requests (to cancel, settle, peek, and so on) are no occasion.

A fault can be held to an entity (not refuse-connections), to a number of times, and to what comes
after `after` others. The entity of a token is the path in its audience.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pairbus.errors import ConfigurationError
from pairbus.servicebus.entity_paths import normalize_path

KINDS = (
    "refuse-connections",
    "cut",
    "lose-answer",
    "answer-late",
    "throttle",
    "internal-error",
    "detach",
    "stop-reading",
    "expire-tokens",
    "ignore-tokens",
    "refuse-tokens",
    "disable",
)
ON_SEND = (
    "cut",
    "detach",
    "stop-reading",
    "throttle",
    "internal-error",
    "lose-answer",
    "answer-late",
)
"""Those that a message which arrives can set off, in this order."""
ON_TOKEN = ("ignore-tokens", "refuse-tokens")


@dataclass(slots=True, eq=False)
class Fault:
    """One thing to go wrong. `fired` says how often it did."""

    kind: str
    entity: str | None = None
    """None: everywhere."""
    count: int | None = None
    """How often at most; None: until it is removed."""
    after: int = 0
    """How many occasions to let pass first."""
    seconds: float = 0.0
    status: int = 401
    """What refuse-tokens answers."""
    fired: int = 0
    number: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigurationError(f"there is no fault {self.kind!r}; {', '.join(KINDS)}")
        if self.count is not None and self.count < 1:
            raise ConfigurationError(f"count is at least 1, not {self.count}")
        if self.after < 0 or not 0 <= self.seconds < math.inf:
            raise ConfigurationError("after and seconds are numbers not below 0")
        if self.status not in range(400, 600):
            raise ConfigurationError(f"status is from 400 to 599, not {self.status!r}")
        if self.entity is not None and not isinstance(self.entity, str):
            raise ConfigurationError(f"entity is a path, not {self.entity!r}")
        if self.entity is not None and self.kind == "refuse-connections":
            raise ConfigurationError("a connection is refused before it is for any entity")

    @property
    def spent(self) -> bool:
        return self.count is not None and self.fired >= self.count

    def concerns(self, path: str | None) -> bool:
        return self.entity is None or (
            path is not None and normalize_path(self.entity) == normalize_path(path)
        )


class Faults:
    """The faults of a namespace."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._numbers = 0

    def __bool__(self) -> bool:
        return bool(self._faults)

    def add(self, fault: Fault) -> Fault:
        self._numbers += 1
        fault.number = self._numbers
        self._faults.append(fault)
        return fault

    def remove(self, fault: Fault) -> None:
        if fault in self._faults:
            self._faults.remove(fault)

    def clear(self) -> None:
        self._faults.clear()

    def all(self) -> list[Fault]:
        """Every fault that was added and not removed, spent ones too."""
        return list(self._faults)

    def find(self, number: int) -> Fault | None:
        return next((fault for fault in self._faults if fault.number == number), None)

    def fire(self, kinds: Iterable[str], path: str | None = None) -> Fault | None:
        """The fault that happens on this occasion, if one does. It has happened then."""
        if not self._faults:
            return None
        for kind in kinds:
            for fault in self._faults:
                if fault.kind != kind or fault.spent or not fault.concerns(path):
                    continue
                if fault.after > 0:
                    fault.after -= 1
                    continue
                fault.fired += 1
                return fault
        return None

    def told(self) -> list[dict[str, Any]]:
        """All faults as plain values."""
        return [
            {
                "number": fault.number,
                "kind": fault.kind,
                "entity": fault.entity,
                "count": fault.count,
                "after": fault.after,
                "seconds": fault.seconds,
                "status": fault.status,
                "fired": fault.fired,
            }
            for fault in self._faults
        ]
