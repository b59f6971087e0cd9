"""Builds the status of a pairing from its parts."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from pairbus.pairing.client_state import ClientState
from pairbus.pairing.counters import total
from pairbus.pairing.path_state import PathState
from pairbus.pairing.rotation import Rotation
from pairbus.pairing.snapshots import BacklogQueueSnapshot, PairingStatus, SecondaryHostSnapshot


def make_status(
    primary: ClientState,
    secondary: ClientState,
    secondary_host: SecondaryHostSnapshot,
    paths: Iterable[PathState],
    rotation: Rotation,
    pulled_at: Mapping[str, datetime],
) -> PairingStatus:
    """Return the status of a pairing. The lock of the state must be held. `pulled_at` has the times
    at which backlog queues were pulled."""
    snapshots = {path.name: path.snapshot() for path in paths}
    errors = [path.last_error for path in snapshots.values() if path.last_error is not None]
    pulled = rotation.pulled()
    return PairingStatus(
        primary=primary.name,
        secondary=secondary.name,
        secondary_host=secondary_host,
        paths=snapshots,
        backlog={
            queue: BacklogQueueSnapshot(
                in_rotation=False, cause=pulled[queue].cause, since=pulled_at.get(queue)
            )
            if queue in pulled
            else BacklogQueueSnapshot(in_rotation=True)
            for queue in rotation.queues
        },
        fault=primary.fault,
        closed=primary.closed,
        last_error=max(errors, key=lambda error: error.when, default=None),
        counters=total(path.counters for path in snapshots.values()),
    )
