"""Whether namespaces answer: a connection, and a token that is taken. Never waits longer than it
was told, not even for the name of a host to be found."""

import threading
from collections.abc import Mapping

from pairbus.amqp.client import Client, ClientOptions
from pairbus.backlog.queues import CLOSE_S
from pairbus.backlog.status import ProbeResult
from pairbus.errors import AmqpError, NotAuthorized, PairbusError
from pairbus.servicebus.addresses import format_address

GRACE_S = 2.0
"""How much longer than its time-out a try may take before it is given up: to hang up, for one."""


def probe_namespaces(namespaces: Mapping[str, tuple[ClientOptions, str]]) -> dict[str, ProbeResult]:
    """Try namespaces side by side. For each: how to reach it, and a path that the token is for."""
    found: dict[str, ProbeResult] = {}

    def try_one(which: str, options: ClientOptions, path: str) -> None:
        found[which] = probe_namespace(options, path)

    tries = [
        # Daemons: one that waits for a resolver must not keep the process.
        threading.Thread(target=try_one, args=(which, *how), name=f"reach {which}", daemon=True)
        for which, how in namespaces.items()
    ]
    for one in tries:
        one.start()
    for one, (options, _) in zip(tries, namespaces.values(), strict=True):
        one.join(options.operation_timeout_s + GRACE_S)
    return {
        which: found.get(which)
        or ProbeResult(format_address(options.host, options.port), "no answer in time")
        for which, (options, _) in namespaces.items()
    }


def probe_namespace(options: ClientOptions, path: str) -> ProbeResult:
    """Connect, and put a token for a path; both within the time that a call may take."""
    where = format_address(options.host, options.port)
    try:
        client = Client(options)
        try:
            deadline = client.deadline(None)
            client.connect(options.operation_timeout_s)
            client.authorize(path, deadline)
        finally:
            client.close(CLOSE_S)
    except AmqpError as exc:
        return ProbeResult(where, exc.description, refused=isinstance(exc, NotAuthorized))
    except PairbusError as exc:
        return ProbeResult(where, str(exc))
    return ProbeResult(where)
