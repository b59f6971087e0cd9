"""rhea in a Node.js process, controlled by JSON lines (see tests/peers/rhea_commands.js)."""

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
from pairbus.amqp.performatives import Error, Modified, Rejected
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
from tests.interop.peers import ConnectOptions, ServerOptions

T = TypeVar("T")
PEERS = Path(__file__).parents[1] / "peers"
DEADLINE_S = 20.0

TYPES_BY_NAME: dict[str, type] = {
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
NAMES_BY_TYPE = {kind: name for name, kind in TYPES_BY_NAME.items()}


def connection_limits(options: ConnectOptions | ServerOptions) -> dict[str, int]:
    """Return the limits of a connection as options of rhea."""
    limits: dict[str, int] = {}
    if options.max_frame_size is not None:
        limits["max_frame_size"] = options.max_frame_size
    if options.window is not None:
        limits["session_buffer_size"] = options.window
    if options.idle_timeout_s is not None:
        # rhea announces the whole timeout, and waits twice as long.
        limits["idle_time_out"] = int(options.idle_timeout_s * 500)
    return limits


def to_json(value: Any) -> dict[str, Any]:
    """Return a value with the name of its AMQP type, as JSON."""
    match value:
        case Described(descriptor, inner):
            return {"t": "described", "d": to_json(descriptor), "v": to_json(inner)}
        case Array(kind, items, descriptor):
            array = {
                "t": "array",
                "of": NAMES_BY_TYPE[kind],
                "v": [to_json(item) for item in items],
            }
            return array if descriptor is None else array | {"d": to_json(descriptor)}
        case dict():
            return {"t": "map", "v": [[to_json(key), to_json(item)] for key, item in value.items()]}
        case Pairs():
            return {"t": "map", "v": [[to_json(key), to_json(item)] for key, item in value]}
        case list():
            return {"t": "list", "v": [to_json(item) for item in value]}
        case None:
            return {"t": "null"}
        case bool():
            return {"t": "boolean", "v": value}
        case int():
            return {"t": NAMES_BY_TYPE[type(value)], "v": str(int(value))}
        case float():
            form = ">f" if isinstance(value, Float32) else ">d"
            return {"t": NAMES_BY_TYPE[type(value)], "v": struct.pack(form, value).hex()}
        case uuid.UUID():
            return {"t": "uuid", "v": value.hex}
        case bytes():
            return {"t": NAMES_BY_TYPE[type(value)], "v": value.hex()}
        case _:
            return {"t": NAMES_BY_TYPE[type(value)], "v": str(value)}


def from_json(tagged: dict[str, Any]) -> Any:
    """Return the value for its JSON. Composites, such as errors and outcomes, are decoded."""
    name, value = tagged["t"], tagged.get("v")
    if name == "described":
        return decode_composite(Described(from_json(tagged["d"]), from_json(value)))
    kind = TYPES_BY_NAME[name]
    if kind is NoneType:
        return None
    if kind is list:
        return [from_json(item) for item in value]
    if kind is dict:
        pairs = [(from_json(key), from_json(item)) for key, item in value]
        result = dict(pairs)
        return result if len(result) == len(pairs) else Pairs(pairs)
    if kind is Array:
        descriptor = from_json(tagged["d"]) if "d" in tagged else None
        return Array(
            TYPES_BY_NAME[tagged["of"]], tuple(from_json(item) for item in value), descriptor
        )
    if kind in (Float32, float):
        return kind(struct.unpack(">f" if kind is Float32 else ">d", bytes.fromhex(value))[0])
    if issubclass(kind, bytes):
        return kind(bytes.fromhex(value))
    return kind(value)


def map_to_json(values: dict[str, Any]) -> dict[str, Any]:
    return {str(key): to_json(value) for key, value in values.items()}


def error_to_json(error: Error | None) -> dict[str, Any] | None:
    if error is None:
        return None
    info = {} if error.info is None else map_to_json(error.info)
    return {"condition": error.condition, "description": error.description, "info": info}


def state_to_json(state: Any) -> dict[str, Any]:
    """Return an outcome for rhea to settle with."""
    outcome: dict[str, Any] = {"outcome": type(state).__name__.lower()}
    match state:
        case Rejected(error) if error is not None:
            outcome["error"] = error_to_json(error)
        case Modified(failed, undeliverable, annotations):
            fields: dict[str, Any] = {}
            if failed:
                fields["delivery_failed"] = True
            if undeliverable:
                fields["undeliverable_here"] = True
            if annotations is not None:
                fields["message_annotations"] = map_to_json(annotations)
            outcome["fields"] = fields
    return outcome


class RheaProcess:
    """A Node.js process that runs one of the scripts. `stop` asserts that it wrote no errors."""

    def __init__(self, script: str) -> None:
        node = shutil.which("node")
        if node is None:
            pytest.fail("node is missing. Install Node.js 18 or newer, with npm.")
        if not (PEERS / "node_modules" / "rhea" / "package.json").exists():
            pytest.fail("rhea is missing. Run `npm ci` in tests/peers.")
        self.events: list[dict[str, Any]] = []
        """Events that no test has waited for."""
        self.stderr: list[str] = []
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
            threading.Thread(target=self._read_stdout, name=f"{script} stdout"),
            threading.Thread(target=self._read_stderr, name=f"{script} stderr"),
        ]
        for reader in self._readers:
            reader.start()

    def stop(self) -> None:
        """Stop the process, and read its output to the end. Idempotent."""
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
            with contextlib.suppress(BrokenPipeError):  # A killed process did not read its input.
                pipe.close()
        assert self.stderr == []

    def kill(self) -> None:
        """Kill the process, and wait until it has ended."""
        self._process.kill()
        self._process.wait(DEADLINE_S)

    def freeze(self) -> None:
        """Stop the process with SIGSTOP. Its sockets stay open, but it does not read or write."""
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
        """Run a command, and wait for its answer."""
        self._commands += 1
        number = self._commands
        line = json.dumps({"n": number, "do": command, **arguments}) + "\n"
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode())
        self._process.stdin.flush()
        self._wait_for(lambda: number in self._answers, command)
        answer = self._answers.pop(number)
        assert "failed" not in answer, answer["failed"]
        return answer

    def next(self, *names: str, **fields: Any) -> dict[str, Any]:
        """Wait for the first event of one of these names with these fields, and remove it."""
        return self._wait_for(lambda: self._take(names, fields), f"{names} {fields}")

    def take(self, name: str, count: int, **fields: Any) -> list[dict[str, Any]]:
        """Wait for `count` events."""
        return [self.next(name, **fields) for _ in range(count)]

    def take_all(self, name: str, **fields: Any) -> list[dict[str, Any]]:
        """Return the events that have arrived."""
        with self._changed:
            return list(iter(lambda: self._take((name,), fields), None))

    def has(self, name: str, **fields: Any) -> bool:
        """Return True if such an event has arrived."""
        with self._changed:
            return self._find((name,), fields) is not None

    def wait_for_order(self, *names: str) -> None:
        """Wait until events with these names have arrived in this order. None is removed."""

        def arrived() -> bool:
            remaining = iter(event["event"] for event in self.events)
            return all(name in remaining for name in names)

        self._wait_for(arrived, " -> ".join(names))

    def _wait_for(self, condition: Callable[[], T | None], expected: str) -> T:
        with self._changed:
            result = self._changed.wait_for(condition, DEADLINE_S)
            if not result:
                events = [str(event)[:300] for event in self.events]
                pytest.fail(f"timed out waiting for {expected}; {self.stderr}; events: {events}")
            return result

    def _find(self, names: tuple[str, ...], fields: dict[str, Any]) -> int | None:
        for index, event in enumerate(self.events):
            if event["event"] in names and all(event.get(key) == fields[key] for key in fields):
                return index
        return None

    def _take(self, names: tuple[str, ...], fields: dict[str, Any]) -> dict[str, Any] | None:
        index = self._find(names, fields)
        return None if index is None else self.events.pop(index)

    def _read_stdout(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line)
            with self._changed:
                if "n" in event:
                    self._answers[event.pop("n")] = event
                else:
                    self.events.append(event)
                self._changed.notify_all()

    def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.stderr.append(line.decode().rstrip())
