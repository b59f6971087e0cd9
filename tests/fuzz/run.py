"""The fuzzing loop: it runs Hypothesis in batches until a number or a time is reached."""

import time
from dataclasses import dataclass

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz.inputs import FuzzInput, fuzz_inputs

BATCH_SIZE = 100
"""The number of inputs of a batch. Hypothesis plans the inputs of one batch together."""


@dataclass(frozen=True)
class Failure:
    """A check that failed, with the minimal input that Hypothesis found for it."""

    seed: int
    batch: int
    error: str

    def __str__(self) -> str:
        return (
            f"{self.error}\n"
            f"To reproduce: python -m tests.fuzz --seed {self.seed} --only {self.batch}"
        )


def fuzz(
    seed: int,
    *,
    batches: int | None = None,
    seconds: float | None = None,
    only: int | None = None,
) -> tuple[int, Failure | None]:
    """Run batches until a number or a time is reached, or a check fails.

    Return the number of inputs that were checked, and the failure.
    """
    if only is not None:
        return _run_batch(seed, only)
    end = None if seconds is None else time.monotonic() + seconds
    checked = batch = 0
    while (batches is None or batch < batches) and (end is None or time.monotonic() < end):
        count, failure = _run_batch(seed, batch)
        checked += count
        batch += 1
        if failure is not None:
            return checked, failure
    return checked, None


def _run_batch(seed: int, batch: int) -> tuple[int, Failure | None]:
    checked = 0

    @hypothesis.seed(f"{seed}:{batch}")
    @settings(
        max_examples=BATCH_SIZE,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(fuzz_inputs())
    def check(fuzz_input: FuzzInput) -> None:
        nonlocal checked
        checked += 1
        hypothesis.note(repr(fuzz_input))
        fuzz_input.run()

    try:
        check()
    except Exception as exc:  # noqa: BLE001 - every exception is a finding
        notes = "\n".join(getattr(exc, "__notes__", ()))
        return checked, Failure(seed, batch, f"{type(exc).__name__}: {exc}\n{notes}")
    return checked, None
