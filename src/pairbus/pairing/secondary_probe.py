"""The operation that probes the host of the secondary while it cannot be reached. It runs in the
background, once for each outage of the host."""

from typing import Any

from pairbus.pairing.effects import CallSdk, Discard, Operation, WaitForChange
from pairbus.pairing.link_factory import LinkFactory
from pairbus.pairing.state import PairingState

PROBE_TIMEOUT_S = 10.0
"""The longest time to wait for the answer to a probe."""


def probe_secondary(pairing: PairingState, factory: LinkFactory) -> Operation[None]:
    """Probe the host until it answers or the pairing is closed, one probe at a time."""
    while True:
        version = pairing.version
        probe = pairing.secondary_host.next_probe()
        if probe is None:
            return
        began = pairing.now()
        if probe.at > began:
            yield WaitForChange(pairing.changed_since(version), probe.at - began)
            continue
        error = yield from open_once(factory, probe.queue, pairing.operation_timeout_s)
        pairing.secondary_host.probed(probe.queue, error, began=began)


def open_once(
    factory: LinkFactory, queue: str, timeout_s: float
) -> Operation[BaseException | None]:
    """Open a link to a backlog queue, send nothing, and return the error."""
    sender = factory.probe_sender(queue)
    try:
        yield CallSdk(sender, _create_batch, min(timeout_s, PROBE_TIMEOUT_S))
    except Exception as exc:  # noqa: BLE001  any error is the result of the probe
        return exc
    finally:
        yield Discard(sender)
    return None


def _create_batch(sender: Any) -> Any:
    return sender.create_message_batch()  # opens the link, in both flavours
