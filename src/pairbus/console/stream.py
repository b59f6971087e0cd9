"""The live stream of snapshots to all open pages: at most one a second, and only after a change."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from pairbus.console.roles import ConsoleRole
from pairbus.console.snapshot import Knowledge, build_snapshot
from pairbus.console.state import ConsoleState

logger = logging.getLogger(__name__)

TICK_S: Final = 1.0
KEEP_ALIVE_S: Final = 15.0
MAX_STREAMS: Final = 500
KEEP_ALIVE: Final = b": keep-alive\n\n"


class SnapshotStream:
    """Builds a snapshot once a second while a page is open, and passes it to all of them."""

    def __init__(self, state: ConsoleState) -> None:
        self._state = state
        self._changed = asyncio.Condition()
        self._content: dict[str, Any] | None = None
        self._snapshot: dict[str, Any] = {}
        self._version = 0
        self._events: dict[ConsoleRole, bytes] = {}
        self._is_closed = False

    async def run(self) -> None:
        """Update the state until the task is cancelled."""
        while True:
            try:
                knowledge = self._state.tick()
                if self._state.watchers:
                    await self._publish(knowledge)
            except Exception:
                logger.exception("The state of the console could not be updated.")
            await asyncio.sleep(TICK_S)

    def snapshot(self, role: ConsoleRole) -> dict[str, Any]:
        """Return a snapshot of this moment."""
        state = self._state
        return {**build_snapshot(state.knowledge(state.now())), "role": role}

    @property
    def is_full(self) -> bool:
        """True if no further page can be opened."""
        return self._state.watchers >= MAX_STREAMS

    async def events(self, role: ConsoleRole, is_valid: Callable[[], bool]) -> AsyncIterator[bytes]:
        """Yield server-sent events until `is_valid` returns False, for example after a logout."""
        self._state.watchers += 1
        try:
            yield encode_event(self.snapshot(role))
            version = self._version
            while True:
                await self._wait_for_change(version)
                if self._is_closed or not is_valid():
                    return
                if self._version == version:
                    yield KEEP_ALIVE
                else:
                    version = self._version
                    yield self._event(role)
        finally:
            self._state.watchers -= 1

    async def close(self) -> None:
        """End all streams."""
        async with self._changed:
            self._is_closed = True
            self._version += 1
            self._changed.notify_all()

    async def _wait_for_change(self, version: int) -> None:
        """Wait until the snapshot is another one, but not for ever."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KEEP_ALIVE_S), self._changed:
                await self._changed.wait_for(lambda: self._version != version)

    async def _publish(self, knowledge: Knowledge) -> None:
        snapshot = build_snapshot(knowledge)
        content = {key: value for key, value in snapshot.items() if key != "time"}
        if content == self._content:
            return
        self._content = content
        async with self._changed:
            self._events.clear()
            self._version += 1
            self._snapshot = snapshot
            self._changed.notify_all()

    def _event(self, role: ConsoleRole) -> bytes:
        """Return the last snapshot as an event. It is encoded once for each role."""
        if role not in self._events:
            self._events[role] = encode_event({**self._snapshot, "role": role})
        return self._events[role]


def encode_event(snapshot: dict[str, Any]) -> bytes:
    """Return a snapshot as a server-sent event. JSON has no line ends, so it is one line."""
    data = json.dumps(snapshot, ensure_ascii=False, separators=(",", ":"))
    return f"event: state\ndata: {data}\n\n".encode("utf-8", "replace")
