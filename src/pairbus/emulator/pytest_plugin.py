"""The pytest plugin: namespaces for tests.

    @pytest.mark.servicebus_queue("orders", requires_session=True)
    def test_orders(servicebus_namespace):
        client = ServiceBusClient.from_connection_string(servicebus_namespace.connection_string)

pytest loads this module in every run, so it imports the emulator only inside of fixtures.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pairbus.emulator.namespace import LocalNamespace
    from pairbus.emulator.namespace_factory import NamespaceFactory

MARKS = """
servicebus_namespace(name, on_disk, **options): options of the servicebus_namespace fixture. \
on_disk=True keeps its data in tmp_path; all others are options of LocalNamespace.
servicebus_queue(name, **settings): create a queue in the servicebus_namespace fixture. \
Settings have the names of the SDK, such as requires_session=True.
servicebus_topic(name, subscriptions, **settings): create a topic in the servicebus_namespace \
fixture. Subscriptions are a list of names, or a dictionary of names and settings.
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("pairbus", "Service Bus namespaces (pairbus)").addoption(
        "--servicebus-on-disk",
        action="store_true",
        help="keep the data of Service Bus namespaces in the folder of tmp_path, not in memory",
    )


def pytest_configure(config: pytest.Config) -> None:
    for mark in MARKS.strip().splitlines():
        config.addinivalue_line("markers", mark)


@pytest.fixture(scope="session")
def servicebus_namespace_factory(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[NamespaceFactory]":
    """Start Service Bus namespaces: `servicebus_namespace_factory("name", queues=["orders"])`.

    A namespace is closed by its `close()`, by a `with` block, or at the end of the run.
    """
    try:
        from pairbus.emulator.namespace_factory import NamespaceFactory
    except ModuleNotFoundError as exc:
        pytest.fail(
            f"Service Bus namespaces need the package {exc.name}."
            " Run: pip install 'pairbus[emulator]'",
            pytrace=False,
        )
    on_disk = pytestconfig.getoption("--servicebus-on-disk")
    with NamespaceFactory(tmp_path_factory.mktemp if on_disk else None) as factory:
        yield factory


@pytest.fixture
def servicebus_namespace(
    request: pytest.FixtureRequest, servicebus_namespace_factory: "NamespaceFactory"
) -> "Iterator[LocalNamespace]":
    """A Service Bus namespace for one test, with the entities of its marks."""
    from pairbus.emulator.pytest_marks import parse_marks
    from pairbus.errors import ConfigurationError

    try:
        marks = parse_marks(request.node.iter_markers())
        folder = request.getfixturevalue("tmp_path") if marks.on_disk else None
        namespace = servicebus_namespace_factory.start(marks.config, folder, marks.options)
    except ConfigurationError as exc:
        pytest.fail(f"{request.node.nodeid}: {exc}", pytrace=False)
    yield namespace
    servicebus_namespace_factory.close(namespace)
