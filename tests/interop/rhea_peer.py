"""rhea in a node process of its own, driven by JSON lines (tests/peers/rhea_talk.js says which)."""

import contextlib
import json
import os
import shutil
import signal
import struct
import subprocess
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar

import pytest

from pairbus.amqp.composite import decode_composite
from pairbus.amqp.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float32,
    Int32,
    Pairs,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

T = TypeVar("T")
PEERS = Path(__file__).parents[1] / "peers"
DEADLINE_S = 20.0

KINDS: dict[str, type] = {
    "null": NoneType,
    "boolean": bool,
    "ubyte": UByte,
    "ushort": UShort,
    "uint": UInt,
    "ulong": ULong,
    "byte": Byte,
    "short": Short,
    "int": Int32,
    "long": int,
    "float": Float32,
    "double": float,
    "decimal32": Decimal32,
    "decimal64": Decimal64,
    "decimal128": Decimal128,
    "char": Char,
    "timestamp": Timestamp,
    "uuid": uuid.UUID,
    "binary": bytes,
    "string": str,
    "symbol": Symbol,
    "list": list,
    "map": dict,
    "array": Array,
}
NAMES = {kind: name for name, kind in KINDS.items()}


def tag(value: Any) -> dict[str, Any]:
    """A value with the name of its AMQP type: equal only where the types are, too."""
    match value:
        case Described(descriptor, inner):
            return {"t": "described", "d": tag(descriptor), "v": tag(inner)}
        case Array(kind, items, descriptor):
            array = {"t": "array", "of": NAMES[kind], "v": [tag(item) for item in items]}
            return array if descriptor is None else array | {"d": tag(descriptor)}
        case dict():
            return {"t": "map", "v": [[tag(key), tag(item)] for key, item in value.items()]}
        case Pairs():
            return {"t": "map", "v": [[tag(key), tag(item)] for key, item in value]}
        case list():
            return {"t": "list", "v": [tag(item) for item in value]}
        case None:
            return {"t": "null"}
        case bool():
            return {"t": "boolean", "v": value}
        case int():
            return {"t": NAMES[type(value)], "v": str(int(value))}
        case float():
            form = ">f" if isinstance(value, Float32) else ">d"
            return {"t": NAMES[type(value)], "v": struct.pack(form, value).hex()}
        case uuid.UUID():
            return {"t": "uuid", "v": value.hex}
        case bytes():
            return {"t": NAMES[type(value)], "v": value.hex()}
        case _:
            return {"t": NAMES[type(value)], "v": str(value)}


def untag(tagged: dict[str, Any]) -> Any:
    """The value again; composites of AMQP, such as errors and outcomes, as such."""
    name, value = tagged["t"], tagged.get("v")
    if name == "described":
        return decode_composite(Described(untag(tagged["d"]), untag(value)))
    kind = KINDS[name]
    if kind is NoneType:
        return None
    if kind is list:
        return [untag(item) for item in value]
    if kind is dict:
        return {untag(key): untag(item) for key, item in value}
    if kind is Array:
        descriptor = untag(tagged["d"]) if "d" in tagged else None
        return Array(KINDS[tagged["of"]], tuple(untag(item) for item in value), descriptor)
    if kind in (Float32, float):
        return kind(struct.unpack(">f" if kind is Float32 else ">d", bytes.fromhex(value))[0])
    if issubclass(kind, bytes):
        return kind(bytes.fromhex(value))
    return kind(value)


def tag_all(values: dict[str, Any]) -> dict[str, Any]:
    return {str(key): tag(value) for key, value in values.items()}


def error(condition: str, description: str, **info: Any) -> dict[str, Any]:
    """An error for rhea to send."""
    return {"condition": condition, "description": description, "info": tag_all(info)}


class RheaPeer:
    """A node process that runs one of our scripts. On leaving, rhea must have had no complaint."""

    def __init__(self, script: str) -> None:
        node = shutil.which("node")
        if node is None:
            pytest.fail(
                "node is missing: install Node.js 18 or newer (Debian: apt install nodejs npm)"
            )
        if not (PEERS / "node_modules" / "rhea" / "package.json").exists():
            pytest.fail("rhea is missing: run `npm ci` in tests/peers")
        self.events: list[dict[str, Any]] = []
        """What has happened and was not waited for yet."""
        self.complaints: list[str] = []
        """What rhea wrote to its standard error."""
        self._answers: dict[int, dict[str, Any]] = {}
        self._commands = 0
        self._changed = threading.Condition()
        self._process = subprocess.Popen(
            [node, str(PEERS / script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if name != "DEBUG"},
        )
        self._readers = [
            threading.Thread(target=self._read_events, name=f"{script} stdout"),
            threading.Thread(target=self._read_complaints, name=f"{script} stderr"),
        ]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> "RheaPeer":
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self.stop()
        if kind is None:
            assert self.complaints == []

    def stop(self) -> None:
        """End the process, and read what it had to say to the end. May be called again."""
        process = self._process
        if process.poll() is None:
            self.thaw()
            assert process.stdin is not None
            try:
                process.stdin.close()
                process.wait(DEADLINE_S)
            except (subprocess.TimeoutExpired, OSError):
                self.kill()
        for reader in self._readers:
            reader.join(DEADLINE_S)
        for pipe in (process.stdin, process.stdout, process.stderr):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):  # what a killed process did not read
                pipe.close()

    def kill(self) -> None:
        """End the process as a crash would, and wait until it is gone."""
        self._process.kill()
        self._process.wait(DEADLINE_S)

    def freeze(self) -> None:
        """Stop the process where it stands: its sockets stay open, and nobody answers."""
        self._process.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + DEADLINE_S
        while not self.frozen:
            assert time.monotonic() < deadline, "the process did not stop"

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    @property
    def frozen(self) -> bool:
        stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == "T"

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def do(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Have a command done, and wait for its answer."""
        self._commands += 1
        number = self._commands
        line = json.dumps({"n": number, "do": command, **arguments}) + "\n"
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode())
        self._process.stdin.flush()
        self.wait_for(lambda: number in self._answers, command)
        answer = self._answers.pop(number)
        assert "failed" not in answer, answer["failed"]
        return answer

    def next(self, event: str, **fields: Any) -> dict[str, Any]:
        """Wait for the first event of this name, with these fields, that was not waited for yet."""
        return self.wait_for(lambda: self._take(event, fields), f"{event} {fields}")

    def take(self, event: str, count: int, **fields: Any) -> list[dict[str, Any]]:
        """Wait for so many of them."""
        return [self.next(event, **fields) for _ in range(count)]

    def take_all(self, event: str) -> list[dict[str, Any]]:
        """Those that are there."""
        with self._changed:
            return list(iter(lambda: self._take(event, {}), None))

    def has(self, event: str, **fields: Any) -> bool:
        """Whether such an event is there."""
        with self._changed:
            return self._find(event, fields) is not None

    def wait_for(self, condition: Callable[[], T | None], what: str) -> T:
        with self._changed:
            result = self._changed.wait_for(condition, DEADLINE_S)
            if not result:
                pytest.fail(
                    f"waited in vain for {what}; rhea said {self.complaints}, and there were "
                    f"{[shown(event) for event in self.events]}"
                )
            return result

    def _find(self, event: str, fields: dict[str, Any]) -> int | None:
        for place, found in enumerate(self.events):
            if found["event"] == event and all(found.get(key) == fields[key] for key in fields):
                return place
        return None

    def _take(self, event: str, fields: dict[str, Any]) -> dict[str, Any] | None:
        place = self._find(event, fields)
        return None if place is None else self.events.pop(place)

    def _read_events(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            with self._changed:
                if "n" in said:
                    self._answers[said.pop("n")] = said
                else:
                    self.events.append(said)
                self._changed.notify_all()

    def _read_complaints(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.complaints.append(line.decode().rstrip())


def shown(event: dict[str, Any]) -> str:
    text = str(event)
    return text if len(text) < 300 else text[:300] + "…"
