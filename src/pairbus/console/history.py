"""Samples of the backlog, its drain and throttling, for the charts of the last hours."""

from bisect import bisect_left
from collections import deque
from itertools import pairwise, takewhile
from typing import Any, Final, NamedTuple

from pairbus.console.storage import ConsoleDatabase

SAMPLE_S: Final = 10
"""The time between two samples."""
KEPT_S: Final = 24 * 3600
MAX_POINTS: Final = 1_000
"""Points of an answer. More samples are thinned out."""
GAP_STEPS: Final = 3
"""Samples that are missing before a chart shows a gap: the console did not run."""


class HistorySample(NamedTuple):
    """The numbers of one moment."""

    time: int
    """Unix time in seconds."""
    backlog: int | None
    rate: float | None
    throttled: float | None
    """Throttled operations since the sample before. None: the console did not run."""


class History:
    """The samples of the last 24 hours, in memory and in the database."""

    def __init__(self, database: ConsoleDatabase, now: float) -> None:
        self._database = database
        rows = database.read(
            "SELECT time, backlog, rate, throttled FROM samples WHERE time >= ? ORDER BY time",
            (int(now) - KEPT_S,),
        )
        self._samples = deque(map(HistorySample._make, rows), maxlen=KEPT_S // SAMPLE_S)
        self._throttled = 0

    def is_due(self, now: float) -> bool:
        """Return True if it is time for another sample."""
        last = self._samples[-1].time if self._samples else 0
        return not last <= now < last + SAMPLE_S  # also after the clock was set back

    def add(self, now: float, backlog: int | None, rate: float | None, throttled: int) -> None:
        """Add a sample. `throttled` is the number of throttled operations since the console
        started."""
        sample = HistorySample(int(now), backlog, rate, throttled - self._throttled)
        self._throttled = throttled
        while self._samples and self._samples[-1].time >= sample.time:
            self._samples.pop()
        self._samples.append(sample)
        self._database.write(
            ("INSERT OR REPLACE INTO samples VALUES (?, ?, ?, ?)", sample),
            ("DELETE FROM samples WHERE time < ? OR time > ?", (int(now) - KEPT_S, int(now))),
        )

    def throttled_since(self, seconds: float, now: float) -> int:
        """Return the number of throttled operations of the last seconds."""
        recent = takewhile(lambda sample: sample.time > now - seconds, reversed(self._samples))
        return round(sum(sample.throttled or 0 for sample in recent))

    def since(self, seconds: float, now: float) -> dict[str, list[Any]]:
        """Return the samples of the last seconds, as columns; throttled operations a minute."""
        samples = list(self._samples)
        first = bisect_left(samples, now - seconds, key=lambda sample: sample.time)
        recent = samples[first:]
        longest_s = GAP_STEPS * SAMPLE_S * _step(recent, MAX_POINTS)
        chosen = with_gaps(thin_out(recent, MAX_POINTS), longest_s)
        return {
            "times": [sample.time for sample in chosen],
            "backlog": [sample.backlog for sample in chosen],
            "rate": [sample.rate for sample in chosen],
            "throttled": [_per_minute(sample.throttled) for sample in chosen],
        }


def thin_out(samples: list[HistorySample], limit: int) -> list[HistorySample]:
    """Return at most `limit` samples. Each stands for some neighbours: the largest backlog and
    rate, so that no peak is lost, and the mean of throttled operations."""
    step = _step(samples, limit)
    if step <= 1:
        return samples
    return [_merge(samples[start : start + step]) for start in range(0, len(samples), step)]


def with_gaps(samples: list[HistorySample], longest_s: int) -> list[HistorySample]:
    """Return the samples, with one without values where the console did not run for more than
    `longest_s`, so that a chart does not connect the samples before and after it."""
    result = samples[:1]
    for before, after in pairwise(samples):
        if after.time - before.time > longest_s:
            result.append(HistorySample((before.time + after.time) // 2, None, None, None))
        result.append(after)
    return result


def _step(samples: list[HistorySample], limit: int) -> int:
    """Return the number of samples that a point of an answer stands for, at least 1."""
    return max(1, -(-len(samples) // limit))


def _merge(samples: list[HistorySample]) -> HistorySample:
    backlog = [sample.backlog for sample in samples if sample.backlog is not None]
    rates = [sample.rate for sample in samples if sample.rate is not None]
    return HistorySample(
        samples[-1].time,
        max(backlog, default=None),
        max(rates, default=None),
        sum(sample.throttled or 0 for sample in samples) / len(samples),
    )


def _per_minute(throttled: float | None) -> float | None:
    return None if throttled is None else round(throttled * 60 / SAMPLE_S, 1)
