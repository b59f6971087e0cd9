"""`pair_namespace` for `azure.servicebus.aio`."""

from pairbus.pairing.aio.client import PairedClient, pair_namespace
from pairbus.pairing.aio.sender import PairedSender

__all__ = ["PairedClient", "PairedSender", "pair_namespace"]
