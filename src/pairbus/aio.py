"""Paired namespaces for `azure.servicebus.aio`: the same as `pairbus`, to be awaited."""

from pairbus.pairing.aio.client import PairedClient, pair_namespace
from pairbus.pairing.aio.ping import drop_pings
from pairbus.pairing.aio.sender import PairedSender

__all__ = ["PairedClient", "PairedSender", "drop_pings", "pair_namespace"]
