"""The fuzzer finds nothing here, and would find something if there were something."""

import subprocess
import sys
from pathlib import Path

import pytest

from pairbus.amqp import decode, frames
from pairbus.amqp.connection import Connection
from pairbus.amqp.events import Closed
from pairbus.amqp.incoming import IncomingTransfers
from tests.fuzz.checks import check_engine, count_calls, peak_memory
from tests.fuzz.conversations import KINDS, record
from tests.fuzz.run import fuzz
from tests.fuzz.shrink import Shrinker

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("seed", range(4))
def test_a_short_while_of_fuzzing_finds_nothing(seed: int) -> None:
    checked, failure = fuzz(seed, iterations=500)

    assert failure is None, str(failure)
    assert checked == 500


@pytest.mark.parametrize("kind", KINDS)
def test_the_conversations_that_it_starts_from_are_valid_and_whole(kind: str) -> None:
    for case in record(kind):
        check_engine(case)
        engine = case.engine()
        assert len(case.chunks) >= 5
        events = [event for chunk in case.chunks for event in engine.receive(chunk, 0.0)]
        if case.client:  # a client that asks for nothing does not expect the answers
            continue
        assert not any(isinstance(event, Closed) and not event.by_peer for event in events)


def test_it_finds_an_exception_and_makes_its_input_small(monkeypatch: pytest.MonkeyPatch) -> None:
    take = IncomingTransfers.on_transfer

    def broken(
        self: IncomingTransfers, data: bytes, pos: int, end: int, events: list[object]
    ) -> None:
        if data[pos:end].count(0x78) > 600:
            raise KeyError("planted")
        take(self, data, pos, end, events)  # type: ignore[arg-type]

    monkeypatch.setattr(IncomingTransfers, "on_transfer", broken)
    _, failure = fuzz(1, iterations=200)

    assert failure is not None
    assert "planted" in failure.error
    assert "--seed 1 --only" in str(failure)


def test_it_finds_readers_that_disagree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_TAG_SIZE", 5)
    careful = frames._decode_any_transfer

    def lenient(data: bytes, pos: int, end: int) -> object:
        monkeypatch.setattr(frames, "MAX_TAG_SIZE", 300)
        try:
            return careful(data, pos, end)
        finally:
            monkeypatch.setattr(frames, "MAX_TAG_SIZE", 5)

    monkeypatch.setattr(frames, "decode_transfer", careful)
    monkeypatch.setattr(frames, "_decode_any_transfer", lenient)
    _, failure = fuzz(2, iterations=500)

    assert failure is not None
    assert failure.target.startswith("read_transfer")


def test_it_finds_bytes_behind_the_close(monkeypatch: pytest.MonkeyPatch) -> None:
    tick = Connection.tick

    def broken(self: Connection, now: float) -> object:
        self._output.append(frames.EMPTY_FRAME)
        return tick(self, now)

    monkeypatch.setattr(Connection, "tick", broken)
    _, failure = fuzz(3, iterations=100)

    assert failure is not None
    assert "behind a close" in failure.error


def test_work_and_memory_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "MAX_ZERO_WIDTH_ELEMENTS", 2**32)
    many = b"\xf0\x00\x00\x00\x05\x00\x0f\xff\xff\x40"

    assert count_calls(lambda: decode.decode(many)) > 1_000_000
    assert peak_memory(lambda: decode.decode(many)) > 1_000_000


def test_a_failing_input_is_made_as_small_as_can_be() -> None:
    def fails(chunks: tuple[bytes, ...]) -> bool:
        return b"needle" in b"".join(chunks)

    noise = bytes(range(256))
    chunks = (noise, noise + b"nee", b"dle" + noise, noise)

    assert b"".join(Shrinker(fails).shrink(chunks)) == b"needle"


def test_it_runs_from_the_command_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--iterations", "20", "--seed", "7"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["seed 7", "20 inputs, no failure"]
