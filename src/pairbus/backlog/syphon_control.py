"""Live control of a syphon: pause, resume and rates, through a file that its planner reads.

The file is the state: it is read several times a second while the syphon runs, and a syphon that
starts with the same file starts as the file says. It belongs to the user alone.
"""

import contextlib
import fcntl
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pairbus.errors import ConfigurationError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """The settings of an operator. The defaults change nothing."""

    paused: bool = False
    paused_destinations: tuple[str, ...] = ()
    max_rate: float | None = None
    """Messages a second. None: as in the options of the syphon."""
    max_rates: Mapping[str, float] = field(default_factory=dict)
    """Messages a second, by destination. They replace those of the options."""

    def pause(self, destination: str | None = None) -> "Control":
        """Return the state after a pause of a destination, or of all."""
        if destination is None:
            return replace(self, paused=True)
        paused = {*self.paused_destinations, destination}
        return replace(self, paused_destinations=tuple(sorted(paused)))

    def resume(self, destination: str | None = None) -> "Control":
        """Return the state without a pause of a destination, or without any pause."""
        if destination is None:
            return replace(self, paused=False, paused_destinations=())
        paused = {*self.paused_destinations} - {destination}
        return replace(self, paused_destinations=tuple(sorted(paused)))

    def set_max_rate(self, rate: float | None, destination: str | None = None) -> "Control":
        """Return the state with a rate for a destination, or for all together. None: the rate of
        the options. Raises ConfigurationError for a rate that is not valid."""
        if rate is not None and not 0 < rate < 1e12:
            raise ConfigurationError(f"The rate must be above 0, not {rate:g}. See also: pause.")
        if destination is None:
            return replace(self, max_rate=rate)
        rates = {path: value for path, value in self.max_rates.items() if path != destination}
        if rate is not None:
            rates[destination] = rate
        return replace(self, max_rates=rates)

    def describe(self) -> list[str]:
        """Return what differs from the defaults, a line for each setting."""
        lines = ["Paused."] if self.paused else []
        lines += [f"{path} is paused." for path in self.paused_destinations]
        if self.max_rate is not None:
            lines.append(f"At most {self.max_rate:g} messages a second.")
        for path, rate in sorted(self.max_rates.items()):
            lines.append(f"At most {rate:g} messages a second to {path}.")
        return lines


class ControlFile:
    """A `Control` in a file. Spark can send it to other processes of the driver's machine."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read: tuple[tuple[int, int, int], Control] | None = None

    def read(self) -> Control:
        """Return the content, or the defaults if there is no file. Raises ConfigurationError if it
        is not a control file."""
        try:
            stat = self.path.stat()
            version = stat.st_ino, stat.st_mtime_ns, stat.st_size
            if self._read is None or self._read[0] != version:
                self._read = version, _parse(json.loads(self.path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return Control()
        except (OSError, ValueError, TypeError) as exc:
            raise ConfigurationError(
                f"{self.path} is not a valid control file ({exc}). Delete it to reset the control."
            ) from exc
        return self._read[1]

    def read_or_keep(self) -> Control:
        """Return the content, or the last valid one."""
        try:
            return self.read()
        except ConfigurationError as exc:
            last = self._read
            logger.warning("%s", exc)
            return Control() if last is None else last[1]

    def update(self, change: Callable[[Control], Control]) -> Control:
        """Replace the content, and return it. Updates of several processes do not get lost."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._lock(".lock", fcntl.LOCK_EX):
            control = change(self.read())
            draft = self.path.with_name(f"{self.path.name}.new")
            draft.unlink(missing_ok=True)
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(asdict(control), file)
            draft.replace(self.path)
        return control

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Mark the file as used by a running syphon."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._lock(".used", fcntl.LOCK_SH):
            yield

    def is_in_use(self) -> bool:
        """Return True if a running syphon uses the file."""
        try:
            with self._lock(".used", fcntl.LOCK_EX | fcntl.LOCK_NB):
                return False
        except BlockingIOError:
            return True
        except FileNotFoundError:
            return False

    @contextlib.contextmanager
    def _lock(self, suffix: str, operation: int) -> Iterator[None]:
        """Lock a file beside the control file. The lock ends with the process."""
        path = self.path.with_name(f"{self.path.name}{suffix}")
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, operation)
            yield
        finally:
            os.close(handle)


def _parse(values: Any) -> Control:
    match values:
        case {
            "paused": bool(paused),
            "paused_destinations": list() as destinations,
            "max_rate": int() | float() | None as max_rate,
            "max_rates": dict() as max_rates,
        }:
            control = Control(
                paused=paused, paused_destinations=tuple(map(str, destinations))
            ).set_max_rate(max_rate)
            for path, rate in max_rates.items():
                control = control.set_max_rate(float(rate), path)
            return control
    raise ValueError("a key is missing, or a value has the wrong type")
