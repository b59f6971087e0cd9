"""A durable Service Bus namespace in one Python process."""

from pairbus.broker.namespace import LocalNamespace

__all__ = ["LocalNamespace"]
