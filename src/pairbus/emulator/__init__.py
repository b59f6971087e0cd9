"""A durable Service Bus namespace on this machine: in this process, or in a child process."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pairbus.emulator.namespace import LocalNamespace
    from pairbus.emulator.namespace_factory import NamespaceFactory
    from pairbus.emulator.process import EmulatedNamespace, EmulatorProcess
    from pairbus.emulator.tiers import PREMIUM, STANDARD, UNLIMITED, NamespaceTier
    from pairbus.emulator.token_issuer import Role, TokenIssuer

__all__ = [
    "PREMIUM",
    "STANDARD",
    "UNLIMITED",
    "EmulatedNamespace",
    "EmulatorProcess",
    "LocalNamespace",
    "NamespaceFactory",
    "NamespaceTier",
    "Role",
    "TokenIssuer",
]

_MODULES = {
    "PREMIUM": "tiers",
    "STANDARD": "tiers",
    "UNLIMITED": "tiers",
    "EmulatedNamespace": "process",
    "EmulatorProcess": "process",
    "LocalNamespace": "namespace",
    "NamespaceFactory": "namespace_factory",
    "NamespaceTier": "tiers",
    "Role": "token_issuer",
    "TokenIssuer": "token_issuer",
}


def __getattr__(name: str) -> object:
    # Imported on first use: pytest loads the plugin of this package in every run.
    if name not in _MODULES:
        raise AttributeError(f"module 'pairbus.emulator' has no attribute {name!r}")
    try:
        value: object = getattr(import_module(f"pairbus.emulator.{_MODULES[name]}"), name)
    except ModuleNotFoundError as exc:
        from pairbus.extras import missing_package

        raise missing_package(exc, "The emulator") from exc
    return value
