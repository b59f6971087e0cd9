"""The names of the service are spelled once: in package servicebus, and nowhere else."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import pairbus
from pairbus import errors
from pairbus.servicebus import conditions

SOURCE = Path(pairbus.__file__).parent

NAMES = re.compile(
    r"x-opt-|x-ms-|com\.microsoft:|^amqp:[a-z:-]+(?<!:list)$|\$management|\$cbs|\$deadletterqueue"
    r"|\$transfer|^\$default$|x-servicebus-transfer|vnd\.ms-|DeadLetterReason"
    r"|DeadLetterErrorDescription|TTLExpiredException|sastoken|schemas\.microsoft\.com"
    r"|servicebus\.azure\.net|SupplementaryAuthorization",
    re.IGNORECASE,
)
PORTS = {5671, 5672}


def is_vocabulary(path: Path) -> bool:
    """Return whether a file may contain the names of the service.

    `errors` cannot import servicebus, so it contains the default conditions of its classes.
    `conditions` imports them from there.
    """
    relative = path.relative_to(SOURCE)
    return relative.parts[0] == "servicebus" or relative == Path("errors.py")


def constants(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yield the constants of a module, except for docstrings."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in docstrings:
            yield node


def spelled_in(path: Path, text: str) -> Iterator[str]:
    for node in constants(ast.parse(text)):
        value = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
        match = NAMES.search(value) if isinstance(value, str) else None
        if match or (type(value) is int and value in PORTS):
            yield f"{path}:{node.lineno}: {value!r}"


def test_names_of_the_service_are_spelled_in_servicebus_only() -> None:
    spelled = [
        line
        for path in sorted(SOURCE.rglob("*.py"))
        if not is_vocabulary(path)
        for line in spelled_in(path.relative_to(SOURCE), path.read_text(encoding="utf-8"))
    ]

    assert spelled == []


@pytest.mark.parametrize(
    "text",
    [
        'NAME = "x-opt-sequence-number"',
        'KEY = b"x-opt-sequence-number"',
        'path = f"{queue}/$DeadLetterQueue"',
        'raise Refused("no", condition="amqp:not-found")',
        "port = 5671",
    ],
)
def test_name_that_is_spelled_elsewhere_is_found(text: str) -> None:
    assert len(list(spelled_in(Path("x.py"), text))) == 1


def test_docstrings_and_names_of_amqp_types_are_not_names_of_the_service() -> None:
    text = '"""Reads x-opt-sequence-number."""\nTYPE = "amqp:open:list"\nSECTION = f"amqp:{NAME}"'

    assert list(spelled_in(Path("x.py"), text)) == []


def test_every_default_condition_of_an_error_has_a_name() -> None:
    names = {value for name, value in vars(conditions).items() if name.isupper()}
    defaults = {
        cls.default_condition
        for cls in vars(errors).values()
        if isinstance(cls, type) and issubclass(cls, errors.AmqpError)
    }

    assert defaults <= names
