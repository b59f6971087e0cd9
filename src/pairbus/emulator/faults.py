"""Injected faults: errors and outages that a namespace produces on request.

| kind | effect |
| --- | --- |
| refuse-connections | a new connection is aborted when its first bytes arrive |
| cut | the connection is aborted when a message arrives, before it is stored |
| lose-answer | messages are stored, but the connection is aborted instead of a reply |
| answer-late | messages are stored, and the reply is sent `seconds` later |
| throttle | messages are rejected with `com.microsoft:server-busy` |
| internal-error | messages are rejected with `amqp:internal-error` |
| detach | the link is detached when a message arrives, before it is stored |
| stop-reading | nothing more is read from a connection on which a message arrives |
| expire-tokens | links are detached as if their tokens had expired, without a grace period |
| ignore-tokens | a token that is sent to `$cbs` is discarded, without a response |
| refuse-tokens | a token that is sent to `$cbs` is refused with `status` |
| disable | the entity behaves as if it were disabled for sending and receiving |

Messages that are scheduled over the management link arrive like messages that are sent: all
messages of one request trigger a fault once. They are rejected with a response: status 503 for
throttle, 500 for internal-error, 400 for disable, and the condition. The fault `detach` detaches
the link that carries requests. Other requests (cancel, settle, peek and so on) trigger no fault.

Requests to the control API (`/$pairbus`), which removes faults, are never refused.

A fault can be limited to an entity (except refuse-connections) and to a number of times, and it can
skip the first `after` occasions. The entity of a token is the path in its audience.
"""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from pairbus.errors import ConfigurationError, EntityDisabled
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
"""Faults that an arriving message can trigger, in this order."""
ON_TOKEN = ("ignore-tokens", "refuse-tokens")


@dataclass(slots=True, eq=False)
class Fault:
    """A fault to inject."""

    kind: str
    entity: str | None = None
    """Path of the entity, or None for all."""
    count: int | None = None
    """Number of times that the fault occurs, or None until it is removed."""
    after: int = 0
    """Number of occasions to skip first."""
    seconds: float = 0.0
    """Delay of the reply (answer-late)."""
    status: int = 401
    """Status of the response (refuse-tokens)."""
    fired: int = 0
    """Number of times that the fault has occurred."""
    number: int = 0
    """Identifies the fault in its namespace."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigurationError(f"Unknown fault {self.kind!r}. Use one of {', '.join(KINDS)}.")
        if self.count is not None and self.count < 1:
            raise ConfigurationError(f"count must be at least 1, not {self.count}.")
        if self.after < 0 or not 0 <= self.seconds < math.inf:
            raise ConfigurationError("after and seconds must be at least 0.")
        if self.status not in range(400, 600):
            raise ConfigurationError(f"status must be from 400 to 599, not {self.status!r}.")
        if self.entity is not None and not isinstance(self.entity, str):
            raise ConfigurationError(f"entity must be a path, not {self.entity!r}.")
        if self.entity is not None and self.kind == "refuse-connections":
            raise ConfigurationError("refuse-connections cannot be limited to an entity.")

    @property
    def spent(self) -> bool:
        """True if the fault has occurred as often as it should."""
        return self.count is not None and self.fired >= self.count

    def applies_to(self, path: str | None) -> bool:
        return self.entity is None or (
            path is not None and normalize_path(self.entity) == normalize_path(path)
        )


class Faults:
    """The injected faults of a namespace."""

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
        """Return all faults that were added and not removed, also spent ones."""
        return list(self._faults)

    def find(self, number: int) -> Fault | None:
        return next((fault for fault in self._faults if fault.number == number), None)

    def fire(self, kinds: Iterable[str], path: str | None = None) -> Fault | None:
        """Return the fault that occurs now, if any, and count it. The first kind comes first."""
        if not self._faults:
            return None
        for kind in kinds:
            for fault in self._faults:
                if fault.kind != kind or fault.spent or not fault.applies_to(path):
                    continue
                if fault.after > 0:
                    fault.after -= 1
                    continue
                fault.fired += 1
                return fault
        return None

    def check_disabled(self, path: str) -> None:
        """Raise EntityDisabled if a fault disables the entity now."""
        if self.fire(("disable",), path):
            raise EntityDisabled(f"{path!r} is disabled by an injected fault.")

    def to_json(self) -> list[dict[str, Any]]:
        """Return all faults as JSON values."""
        return [asdict(fault) for fault in self._faults]
