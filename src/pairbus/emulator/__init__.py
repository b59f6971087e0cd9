"""A durable Service Bus namespace on this machine: in this process, or in a child process."""

from pairbus.emulator.namespace import LocalNamespace
from pairbus.emulator.process import EmulatedNamespace, EmulatorProcess
from pairbus.emulator.token_issuer import Role, TokenIssuer

__all__ = ["EmulatedNamespace", "EmulatorProcess", "LocalNamespace", "Role", "TokenIssuer"]
