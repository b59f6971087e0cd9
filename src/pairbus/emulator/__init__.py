"""A durable Service Bus namespace in one Python process."""

from pairbus.emulator.namespace import LocalNamespace

__all__ = ["LocalNamespace"]
