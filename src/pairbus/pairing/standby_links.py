"""The operation that opens links to the backlog before a path fails over. To open a link takes most
of a second, for which the first send in failover would wait otherwise.

It runs in the background once a path is suspect. Opening a link sends no message, and a failure to
open one changes nothing: the first send in failover opens its link itself, and reports the failure.
"""

from collections.abc import Callable, Iterable

from pairbus.events import PathStatus
from pairbus.pairing.effects import CallSdk, CloseAll, Discard, Operation
from pairbus.pairing.sdk import link_limits
from pairbus.pairing.sender_links import SenderLinks
from pairbus.pairing.state import PairingState, PathState

OPEN_TIMEOUT_S = 10.0
"""The longest time to wait for a link."""


def open_standby_links(
    pairing: PairingState, path: PathState, senders: Callable[[], Iterable[SenderLinks]]
) -> Operation[None]:
    """Open a link for each sender of a path, one after the other, until the path is healthy or the
    pairing is closed."""
    for links in senders():
        if path.health.status is PathStatus.HEALTHY or pairing.primary.down:
            return
        yield from _open_standby_link(pairing, path, links)


def _open_standby_link(
    pairing: PairingState, path: PathState, links: SenderLinks
) -> Operation[None]:
    claim = pairing.backlog.claim_any(path, links)
    if claim is None:
        return
    with claim:  # the link shows nothing about the queue, which only a send does
        queue = claim.queue
        if claim.is_trial or links.has_backlog_link(queue):
            return
    sender = links.factory.backlog_sender(queue)
    opened = False
    try:
        timeout_s = min(OPEN_TIMEOUT_S, pairing.operation_timeout_s)
        limits = yield CallSdk(sender, link_limits, timeout_s)
        links.factory.note_message_limit(queue, limits.max_message_size)
        opened = True
    except Exception:  # noqa: BLE001  a send in failover reports it
        return
    finally:
        if not opened:
            yield Discard(sender)
    if links.standby.setdefault(queue, sender) is not sender:
        # The path was healthy and became suspect again meanwhile: this operation runs twice.
        yield Discard(sender)
    if links.closed or path.health.status is PathStatus.HEALTHY:
        yield from close_standby_links([links])


def close_standby_links(senders: Iterable[SenderLinks]) -> Operation[None]:
    """Close the links that were not used."""
    yield CloseAll(tuple(sender for links in senders for sender in links.take_standby()))
