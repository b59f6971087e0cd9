"""The loop: make an input, check it, and make it small where a check fails."""

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from pairbus.amqp.batch import make_batch
from pairbus.amqp.encode import encode
from pairbus.errors import EncodeError
from tests.fuzz import inputs
from tests.fuzz.checks import (
    check_batch,
    check_decode,
    check_engine,
    check_sections,
    check_transfer,
    count_calls,
    peak_memory,
)
from tests.fuzz.conversations import Case, recorded
from tests.fuzz.shrink import Shrinker


@dataclass(frozen=True)
class Failure:
    """A check that failed, and the smallest input found for which it does."""

    seed: int
    number: int
    target: str
    chunks: tuple[bytes, ...]
    error: str

    def __str__(self) -> str:
        shown = "\n".join(f"    {chunk.hex()}" for chunk in self.chunks)
        return (
            f"{self.target} failed: {self.error}\n"
            f"smallest input found, a line for each piece:\n{shown}\n"
            f"again: python -m tests.fuzz --seed {self.seed} --only {self.number}"
        )


Check = Callable[[tuple[bytes, ...]], None]


def fuzz(
    seed: int,
    *,
    iterations: int | None = None,
    seconds: float | None = None,
    only: int | None = None,
) -> tuple[int, Failure | None]:
    """Check inputs until a number or a time is reached; how many, and the first failure."""
    if only is not None:
        return 1, _one(seed, only)
    end = None if seconds is None else time.monotonic() + seconds
    number = 0
    while (iterations is None or number < iterations) and (end is None or time.monotonic() < end):
        failure = _one(seed, number)
        number += 1
        if failure is not None:
            return number, failure
    return number, None


def _one(seed: int, number: int) -> Failure | None:
    """Each input has its own source of chance, so that it can be had again without the rest."""
    chance = Random(f"{seed}:{number}")
    target, chunks, check = _pick(chance)
    if number % 16 == 0:
        target, check = f"{target}, work", _within_work(check)
    elif number % 64 == 1:
        target, check = f"{target}, memory", _within_memory(check)
    error = _error(check, chunks)
    if error is None:
        return None
    smallest = Shrinker(lambda smaller: _error(check, smaller) is not None).shrink(chunks)
    return Failure(seed, number, target, smallest, _error(check, smallest) or error)


def _error(check: Check, chunks: tuple[bytes, ...]) -> str | None:
    try:
        check(chunks)
    except Exception as exc:  # noqa: BLE001 - any exception at all is what is looked for
        last = traceback.extract_tb(exc.__traceback__)[-1]
        return f"{type(exc).__name__}: {exc} ({last.filename}:{last.lineno})"
    return None


def _pick(chance: Random) -> tuple[str, tuple[bytes, ...], Check]:
    kind = chance.random()
    if kind < 0.6:
        case = _conversation(chance)
        name = f"a {case.kind} {'client' if case.client else 'server'}"
        return name, case.chunks, lambda chunks: check_engine(replace(case, chunks=chunks))
    if kind < 0.75:
        return "decode", (_decodable(chance),), lambda chunks: check_decode(b"".join(chunks))
    if kind < 0.88:
        data = inputs.transfer(chance)
        data = inputs.changed(chance, data) if chance.random() < 0.7 else data
        return "read_transfer", (data,), lambda chunks: check_transfer(b"".join(chunks))
    if kind < 0.95:
        data = inputs.changed(chance, inputs.message(chance), inputs.message(chance))
        return "sections", (data,), lambda chunks: check_sections(b"".join(chunks))
    return "batch", (_batch(chance),), lambda chunks: check_batch(b"".join(chunks))


def _decodable(chance: Random) -> bytes:
    if chance.random() < 0.3:
        return inputs.noise(chance)
    try:
        data = encode(inputs.value(chance))
    except EncodeError:
        data = inputs.noise(chance)
    return inputs.changed(chance, data) if chance.random() < 0.8 else data


def _batch(chance: Random) -> bytes:
    whole = make_batch([inputs.message(chance) for _ in range(chance.randrange(4))])
    return inputs.changed(chance, whole, inputs.message(chance))


def _conversation(chance: Random) -> Case:
    """A recorded conversation with one of its turns changed, or others after it."""
    cases = recorded()
    case = chance.choice(cases)
    turns = list(case.chunks)
    place = chance.randrange(len(turns))
    other = chance.choice(chance.choice(cases).chunks)
    match chance.randrange(7):
        case 0 | 1:
            turns[place] = inputs.changed(chance, turns[place], other)
        case 2:
            turns[place:] = [inputs.noise(chance)]
        case 3 | 4:
            extra = [inputs.one_frame(chance) for _ in range(chance.choice((1, 1, 3, 20, 60)))]
            turns[place:place] = extra
        case 5:
            turns[place] = other
        case 6:
            turns.insert(place, turns[chance.randrange(len(turns))])
    if chance.random() < 0.3:
        turns = _cut(chance, turns)
    return replace(case, chunks=tuple(turns))


def _cut(chance: Random, turns: list[bytes]) -> list[bytes]:
    """The same bytes in other pieces."""
    pieces = []
    for turn in turns:
        size = chance.choice((1, 3, 8, 100, 10_000))
        pieces += [turn[start : start + size] for start in range(0, len(turn), size)]
    return pieces


def _within_work(check: Check) -> Check:
    def run(chunks: tuple[bytes, ...]) -> None:
        size = sum(map(len, chunks))
        calls = count_calls(lambda: check(chunks))
        limit = 20_000 + 500 * len(chunks) + 60 * size
        assert calls <= limit, f"{calls} calls for {size} bytes"

    return run


def _within_memory(check: Check) -> Check:
    def run(chunks: tuple[bytes, ...]) -> None:
        size = sum(map(len, chunks))
        peak = peak_memory(lambda: check(chunks))
        limit = 2_000_000 + 1_000 * size
        assert peak <= limit, f"{peak} bytes of memory for {size} bytes"

    return run
