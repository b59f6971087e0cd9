"""Skipping of time: everything that becomes due happens in its order, and at its time."""

from pairbus.emulator.entities.registry import EntityRegistry

STEP_MS = 50
"""Events that are closer together happen at once, as when time passes by itself."""


def skip_time(entities: EntityRegistry, start_ms: int, end_ms: int) -> None:
    """Let locks and messages expire, scheduled messages become active, and unused entities be
    deleted, from one time to another.

    One tick at the end would not do: a message that becomes due on the way, and is forwarded to
    another queue, may expire there on the way as well.
    """
    now_ms = start_ms
    while True:
        while entities.tick(now_ms):
            pass
        if now_ms >= end_ms:
            return
        next_ms = entities.next_event_ms()
        now_ms = end_ms if next_ms is None else min(max(next_ms, now_ms + STEP_MS), end_ms)
