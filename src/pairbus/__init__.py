"""Paired namespaces for Azure Service Bus.

Today the package holds the AMQP 1.0 engine, `pairbus.amqp`. Pairing is built on top of it, and is
not there yet.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
