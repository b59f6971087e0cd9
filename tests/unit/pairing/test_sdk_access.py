"""Private names of the Azure SDK are used in four modules only, and missing ones are reported."""

import ast
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from azure.servicebus import ServiceBusClient, __version__

import pairbus
from pairbus.errors import ConfigurationError
from pairbus.pairing import sdk, sdk_clients

PAIRING = Path(pairbus.__file__).parent / "pairing"
EXEMPT = {
    "sdk.py",
    "sdk_clients.py",
    "sdk_opening.py",
    "sdk_payloads.py",
    "sdk_transfers.py",
}
MODULES = [
    path
    for path in sorted(PAIRING.rglob("*.py"))
    if path.relative_to(PAIRING).as_posix() not in EXEMPT
]
OWN = {"self", "cls"}


def private_accesses(text: str) -> Iterator[str]:
    """Yield private attributes of objects other than `self`, and imports of private modules."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Attribute(value=owner, attr=name) if is_private(name):
                if not (isinstance(owner, ast.Name) and owner.id in OWN):
                    yield f"line {node.lineno}: {ast.unparse(node)}"
            case ast.Call(func=ast.Name(id="getattr" | "hasattr" | "setattr"), args=[_, name, *_]):
                if isinstance(name, ast.Constant) and is_private(str(name.value)):
                    yield f"line {node.lineno}: {ast.unparse(node)}"
            case ast.ImportFrom(module=str(module)) if module.startswith("azure"):
                names = [*module.split("."), *(alias.name for alias in node.names)]
                if any(is_private(name) for name in names):
                    yield f"line {node.lineno}: {ast.unparse(node)}"


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PAIRING).as_posix())
def test_module_uses_no_private_name_of_the_sdk(path: Path) -> None:
    assert list(private_accesses(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "text",
    [
        "client._config",
        "self._sender._handler",
        "getattr(client, '_credential')",
        "sender._open = None",
        "from azure.servicebus._pyamqp import client",
        "from azure.servicebus import _base_handler",
    ],
)
def test_private_access_is_found(text: str) -> None:
    assert len(list(private_accesses(text))) == 1


@pytest.mark.parametrize("text", ["self._state", "client.close()", "value.__class__"])
def test_own_and_public_names_are_allowed(text: str) -> None:
    assert list(private_accesses(text)) == []


def test_missing_name_is_reported_with_the_version_of_the_sdk() -> None:
    with pytest.raises(ConfigurationError) as caught:
        sdk.require(SimpleNamespace(_open=None), "_open", "_handler")

    text = str(caught.value)
    assert f"azure-servicebus {__version__}" in text
    assert "SimpleNamespace has no '_handler'" in text


@pytest.mark.parametrize("name", ["_config", "_credential", "_entity_name", "_handlers"])
def test_client_without_a_private_name_is_refused(name: str) -> None:
    client = ServiceBusClient.from_connection_string(
        "Endpoint=sb://name.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=a2V5"
    )
    sdk_clients.check_client(client)
    delattr(client, name)

    with pytest.raises(ConfigurationError, match=f"ServiceBusClient has no '{name}'"):
        sdk_clients.check_client(client)
