"""Imports between the packages of pairbus go in one direction (docs/explanation/design.md).

Here a package is a module or package directly below `pairbus`. Every import statement counts, also
inside functions and for type checkers; `TYPES_ONLY` lists the exceptions for type checkers.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src" / "pairbus"

LAYERS = [
    {"cli", "__main__", "aio"},
    {"console", "drill"},
    {"syphon", "backlog", "cost", "pairing", "emulator"},
    {"spark", "usage", "telemetry"},
    {"transfer", "listeners"},
    {"backlog_shapes"},
    {"amqp"},
    {"servicebus"},
    {"options", "events", "errors", "extras", "console_address", "garbage"},
]
LAYER = {package: depth for depth, packages in enumerate(LAYERS) for package in packages}

# pairbus/__init__.py: imported with every module, so it must not bring in Spark or the emulator.
TOP = "__init__"
INIT = "__init__.py"
NOT_IN_TOP = {"cli", "console", "emulator", "syphon"}

# Third-party libraries, and the only places that may import them.
PLACES = {
    "azure": ("pairing/", "drill/", "amqp/client/default_credential.py"),
    "sqlite3": ("emulator/storage/", "console/storage.py"),
    "starlette": ("console/",),
    "uvicorn": ("console/",),
    "opentelemetry": ("telemetry/",),
    "pyspark": ("spark/", "syphon/", "cost/report/", "backlog/redrive_on_spark.py"),
}

# Public signatures name these types; at run time nothing is imported.
TYPES_ONLY = {("options", "azure"), ("options", "syphon"), ("pairing", "syphon")}

VOCABULARY = "servicebus/"
ENGINE = "amqp/"
CLIENT = "amqp/client/"
NOT_IN_ENGINE = {"socket", "ssl", "asyncio", "threading", "select", "selectors", "time"}


@dataclass(frozen=True, slots=True)
class Import:
    target: tuple[str, ...]  # ("pairbus", "amqp", "types")
    line: int
    in_function: bool
    types_only: bool


def imports_of(path: str, text: str) -> Iterator[Import]:
    """Yield the imports of a file with full names; `path` is relative to src/pairbus."""
    package = ("pairbus", *PurePosixPath(path).parts[:-1])

    def walk(node: ast.AST, in_function: bool, types_only: bool) -> Iterator[Import]:
        match node:
            case ast.Import(names=names):
                for alias in names:
                    target = tuple(alias.name.split("."))
                    yield Import(target, node.lineno, in_function, types_only)
            case ast.ImportFrom(module=module, names=names, level=level):
                base = package[: len(package) - level + 1] if level else ()
                base += tuple(module.split(".")) if module else ()
                for alias in names:
                    yield Import((*base, alias.name), node.lineno, in_function, types_only)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                in_function = True
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                types_only = True
        for child in ast.iter_child_nodes(node):
            yield from walk(child, in_function, types_only)

    yield from walk(ast.parse(text, path), in_function=False, types_only=False)


def package_of(path: str) -> str:
    return PurePosixPath(path).parts[0].removesuffix(".py")


def package_named_by(imported: Import) -> str | None:
    """Return the package that an import reaches, or None if it is not a package of pairbus."""
    if imported.target[0] != "pairbus":
        return None
    return imported.target[1] if imported.target[1:2] and imported.target[1] in LAYER else TOP


def violation(path: str, imported: Import) -> str | None:
    """Return the rule that an import breaks, or None."""
    library = imported.target[0]
    if is_type_exception(path, imported):
        return None
    if library in PLACES and not path.startswith(PLACES[library]):
        return f"{library} belongs in {' and '.join(PLACES[library])} only"
    if library == "opentelemetry" and not (imported.in_function or imported.types_only):
        return "opentelemetry is optional, so it is imported inside functions only"
    if imported.target[:2] == ("opentelemetry", "sdk"):
        return "the SDK of OpenTelemetry belongs to the application"
    third_party = library != "pairbus" and library not in sys.stdlib_module_names
    if path.startswith(VOCABULARY) and third_party:
        return "servicebus uses the standard library only"
    in_engine = path.startswith(ENGINE) and not path.startswith(CLIENT)
    if in_engine and library in NOT_IN_ENGINE:
        return f"the engine does no I/O and has no clock, so it cannot use {library}"
    if in_engine and imported.target[:3] == ("pairbus", "amqp", "client") and path != ENGINE + INIT:
        return "the engine does not import its client"

    source, target = package_of(path), package_named_by(imported)
    if target is None or target == source:
        return None
    if source == TOP:
        return f"importing pairbus must not import {target}" if target in NOT_IN_TOP else None
    if target == TOP:
        return None if source == "cli" else "packages do not import pairbus itself"
    if target == "emulator" and source not in ("cli", "drill"):
        return "emulator is imported by cli and drill only"
    if LAYER[target] < LAYER[source]:
        return f"{target} is above {source}"
    if (source, target) == ("pairing", "syphon") and not imported.in_function:
        return "pairing imports syphon only inside the function that starts it"
    return None


def is_type_exception(path: str, imported: Import) -> bool:
    target = package_named_by(imported) if imported.target[0] == "pairbus" else imported.target[0]
    return imported.types_only and (package_of(path), target) in TYPES_ONLY


def import_cycles(sources: dict[str, str]) -> Iterator[str]:
    """Yield packages of one layer that form an import cycle."""
    uses: dict[str, set[str]] = {}
    for path, text in sources.items():
        for imported in imports_of(path, text):
            source, target = package_of(path), package_named_by(imported)
            starts_the_syphon = imported.in_function and (source, target) == ("pairing", "syphon")
            if starts_the_syphon or is_type_exception(path, imported):
                continue
            if source in LAYER and target in LAYER and source != target:
                uses.setdefault(source, set()).add(target)

    def reach(package: str, seen: set[str]) -> set[str]:
        for target in uses.get(package, set()) - seen:
            seen.add(target)
            reach(target, seen)
        return seen

    for package in sorted(uses):
        if package in reach(package, set()):
            yield f"{package} is part of an import cycle"


def violations(sources: dict[str, str]) -> Iterator[str]:
    """Yield the broken rules of a tree of files, given as path below src/pairbus and text."""
    placed = LAYER.keys() | {TOP}
    for path, text in sources.items():
        if package_of(path) not in placed:
            yield f"{path} has no layer. Add it here and to docs/explanation/design.md"
            continue
        for imported in imports_of(path, text):
            if problem := violation(path, imported):
                yield f"{path}:{imported.line} imports {'.'.join(imported.target)}: {problem}"
    yield from import_cycles(sources)


def test_source_follows_the_import_rules():
    sources = {
        path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(SOURCE.rglob("*.py"))
    }

    assert INIT in sources
    assert list(violations(sources)) == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        # Upwards.
        ("amqp/types.py", "from pairbus.pairing import health"),
        ("transfer.py", "import pairbus.usage.ledger"),
        ("errors.py", "from pairbus import options, amqp"),
        ("options.py", "from . import transfer"),
        ("pairing/sender.py", "from ..cli import main"),
        ("pairing/aio/sender.py", "from ...cli.send import main"),
        # pairbus itself.
        ("errors.py", "import pairbus"),
        ("pairing/client.py", "from pairbus import __version__"),
        ("pairing/client.py", "from .. import pair_namespace"),
        ("__init__.py", "from pairbus.emulator import Namespace"),
        ("__init__.py", "from .syphon import Syphon"),
        # The emulator is for cli and drill only.
        ("syphon/pipeline.py", "from pairbus.emulator.meter import Meter"),
        ("cost/forecast.py", "def f():\n    from ..emulator import meter"),
        # Libraries that only some packages may import.
        ("syphon/source.py", "from azure.servicebus import ServiceBusClient"),
        ("amqp/client/token.py", "import azure.core.credentials as credentials"),
        ("emulator/server.py", "import sqlite3"),
        ("usage/ledger.py", "import pyspark.sql"),
        ("cost/plots.py", "from pyspark.sql import Row"),
        ("pairing/client.py", "from pyspark import SparkContext"),
        # OpenTelemetry belongs in telemetry, and its API only, inside functions.
        ("pairing/client.py", "from opentelemetry import trace"),
        ("telemetry/spans.py", "from opentelemetry.trace import Link"),
        ("telemetry/spans.py", "def f():\n    from opentelemetry.sdk.trace import TracerProvider"),
        # Imports for type checkers count, except for those in TYPES_ONLY.
        ("errors.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import azure.core"),
        # Pairing may import the syphon only inside a function.
        ("pairing/client.py", "from pairbus.syphon import pipeline"),
        ("pairing/client.py", "class C:\n    from ..syphon import pipeline"),
        (
            "cost/forecast.py",
            "if TYPE_CHECKING:\n    from azure.servicebus import ServiceBusClient",
        ),
        # No I/O and no clock in the engine.
        *[("amqp/engine.py", f"import {name}") for name in sorted(NOT_IN_ENGINE)],
        ("amqp/__init__.py", "from time import monotonic"),
        ("amqp/sasl.py", "def f():\n    import ssl"),
        ("amqp/client.py", "import socket"),
        ("amqp/engine.py", "from .client import Connection"),
        ("amqp/engine.py", "from . import client"),
        # The vocabulary of the service is below everything but options, events and errors.
        ("servicebus/tokens.py", "from pairbus.amqp.types import Symbol"),
        ("servicebus/administration.py", "import requests"),
        # A package without a layer.
        ("utils.py", "x = 1"),
    ],
)
def test_broken_rule_is_caught(path: str, text: str):
    assert len(list(violations({path: text}))) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("cli/send.py", "from pairbus import __version__, emulator, pairing, syphon"),
        ("pairing/sender.py", "from azure.servicebus import aio\nfrom .. import errors"),
        ("pairing/aio/sender.py", "from ..health import Health\nfrom ... import transfer"),
        ("pairing/client.py", "def start():\n    from pairbus.syphon import pipeline"),
        ("pairing/client.py", "async def start():\n  if x:\n    from ..syphon import a"),
        ("syphon/source.py", "from pyspark.sql import functions\nfrom ..amqp import client"),
        ("cost/report/rows.py", "import pyspark"),
        ("telemetry/spans.py", "def f():\n    from opentelemetry import trace"),
        ("telemetry/spans.py", "if TYPE_CHECKING:\n    from opentelemetry.trace import Span"),
        ("emulator/storage/store.py", "import sqlite3"),
        ("emulator/server.py", "import asyncio, ssl, time\nfrom ..amqp import engine"),
        ("transfer.py", "from .amqp import sections"),
        ("amqp/client/connection.py", "import socket, ssl, time\nfrom ..engine import Engine"),
        ("amqp/engine.py", "import struct, timeline\nfrom . import types\nfrom ..errors import E"),
        ("amqp/__init__.py", "from .client import Connection"),
        ("options.py", "from .errors import OptionError"),
        ("options.py", "if TYPE_CHECKING:\n    from azure.servicebus import ServiceBusClient"),
        ("pairing/client.py", "if TYPE_CHECKING:\n    from ..syphon import pipeline"),
        ("servicebus/administration.py", "import ssl\nfrom ..errors import Busy"),
        ("__init__.py", "from .pairing import pair_namespace\nfrom .errors import PairbusError"),
    ],
)
def test_valid_import_is_accepted(path: str, text: str):
    assert list(violations({path: text})) == []


def test_packages_of_one_layer_do_not_import_each_other_in_a_cycle():
    one_way = {"syphon/pipeline.py": "from ..cost import prices"}
    both_ways = one_way | {"cost/forecast.py": "from ..syphon import pipeline"}

    assert list(violations(one_way)) == []
    assert list(violations(both_ways)) == [
        "cost is part of an import cycle",
        "syphon is part of an import cycle",
    ]


def test_import_inside_a_function_that_starts_the_syphon_makes_no_cycle():
    sources = {
        "pairing/client.py": "def start():\n    from ..syphon import pipeline",
        "syphon/supervisor.py": "from ..pairing import client",
    }

    assert list(violations(sources)) == []


def test_complaint_names_file_line_and_import():
    broken = violations({"usage/ledger.py": "x = 1\n\nimport starlette"})

    assert list(broken) == [
        "usage/ledger.py:3 imports starlette: starlette belongs in console/ only"
    ]
