"""A durable Service Bus namespace on this machine: in this process, or in a child process."""

from pairbus.emulator.namespace import LocalNamespace
from pairbus.emulator.process import EmulatedNamespace, EmulatorProcess
from pairbus.emulator.tiers import PREMIUM, STANDARD, UNLIMITED, NamespaceTier

__all__ = [
    "PREMIUM",
    "STANDARD",
    "UNLIMITED",
    "EmulatedNamespace",
    "EmulatorProcess",
    "LocalNamespace",
    "NamespaceTier",
]
