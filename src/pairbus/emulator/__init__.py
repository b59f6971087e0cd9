"""A durable Service Bus namespace on this machine: in this process, or in a child process."""

from pairbus.extras import missing_package

try:
    from pairbus.emulator.namespace import LocalNamespace
    from pairbus.emulator.process import EmulatedNamespace, EmulatorProcess
except ModuleNotFoundError as exc:
    raise missing_package(exc, "The emulator") from exc

__all__ = ["EmulatedNamespace", "EmulatorProcess", "LocalNamespace"]
