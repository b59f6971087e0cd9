"""The fuzzer finds no failure in the engine, and finds failures that are planted in it."""

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
from tests.fuzz.run import BATCH_SIZE, fuzz

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("seed", range(2))
def test_fuzzing_finds_no_failure(seed: int) -> None:
    checked, failure = fuzz(seed, batches=5)

    assert failure is None, str(failure)
    assert checked >= 5 * BATCH_SIZE


@pytest.mark.parametrize("kind", KINDS)
def test_recorded_conversations_are_valid_and_complete(kind: str) -> None:
    for case in record(kind):
        check_engine(case)
        engine = case.engine()
        assert len(case.chunks) >= 5
        events = [event for chunk in case.chunks for event in engine.receive(chunk, 0.0)]
        if case.client:  # A client without an application does not expect the answers.
            continue
        assert not any(isinstance(event, Closed) and not event.by_peer for event in events)


def test_planted_exception_is_found_with_a_small_input(monkeypatch: pytest.MonkeyPatch) -> None:
    on_transfer = IncomingTransfers.on_transfer

    def broken(
        self: IncomingTransfers, data: bytes, pos: int, end: int, events: list[object]
    ) -> None:
        if data[pos:end].count(0x78) > 600:
            raise KeyError("planted")
        on_transfer(self, data, pos, end, events)  # type: ignore[arg-type]

    monkeypatch.setattr(IncomingTransfers, "on_transfer", broken)
    _, failure = fuzz(1, batches=2)

    assert failure is not None
    assert "planted" in failure.error
    assert f"--seed 1 --only {failure.batch}" in str(failure)


def test_transfer_decoders_that_disagree_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_TAG_SIZE", 5)
    general = frames._decode_any_transfer

    def lenient(data: bytes, pos: int, end: int) -> object:
        monkeypatch.setattr(frames, "MAX_TAG_SIZE", 300)
        try:
            return general(data, pos, end)
        finally:
            monkeypatch.setattr(frames, "MAX_TAG_SIZE", 5)

    monkeypatch.setattr(frames, "decode_transfer", general)
    monkeypatch.setattr(frames, "_decode_any_transfer", lenient)
    _, failure = fuzz(2, batches=5)

    assert failure is not None
    assert "decode_transfer returns" in failure.error


def test_output_after_a_close_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    tick = Connection.tick

    def broken(self: Connection, now: float) -> object:
        self._output.append(frames.EMPTY_FRAME)
        return tick(self, now)

    monkeypatch.setattr(Connection, "tick", broken)
    _, failure = fuzz(3, batches=1)

    assert failure is not None
    assert "after close" in failure.error


def test_work_and_memory_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "MAX_ZERO_WIDTH_ELEMENTS", 2**32)
    many = b"\xf0\x00\x00\x00\x05\x00\x0f\xff\xff\x40"

    assert count_calls(lambda: decode.decode(many)) > 1_000_000
    assert peak_memory(lambda: decode.decode(many)) > 1_000_000


def test_fuzzer_runs_from_the_command_line() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--batches", "1", "--seed", "7"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )

    assert result.returncode == 0, result.stderr
    first, last = result.stdout.splitlines()
    assert first == "seed 7"
    assert last.endswith(" inputs, no failure")
