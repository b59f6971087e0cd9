"""A namespace that is killed, controlled through its socket, or has names of an older version."""

import os
import socket
from pathlib import Path

import pytest

from pairbus.amqp.client import Client, ClientOptions, Receiver, Sender
from pairbus.amqp.sections import Message
from pairbus.emulator.control_socket import ControlSocket, NamespaceAction, request_action
from pairbus.emulator.namespace import LocalNamespace
from pairbus.emulator.storage.store import Store
from pairbus.errors import ConnectionLost, StateError
from pairbus.servicebus.administration import AdministrationClient, AdministrationOptions
from pairbus.servicebus.entity_status import EntityStatus


def client_of(namespace: LocalNamespace) -> Client:
    return Client(ClientOptions.from_connection_string(namespace.connection_string))


def test_killed_namespace_keeps_what_is_on_disk_and_nothing_else(tmp_path: Path) -> None:
    failures: list[None] = []
    with LocalNamespace(folder=tmp_path, on_failure=lambda: failures.append(None)) as namespace:
        namespace.create_queue("q")
        with client_of(namespace) as client:
            sender = Sender(client, "q")
            sender.send(Message.build(value="accepted").encode())
            assert namespace._loop is not None
            runtime = namespace._runtime
            assert runtime is not None
            # A write of the turn in which the namespace is killed.
            namespace._loop.call_soon_threadsafe(
                lambda: runtime.store.entities.add("lost", "Queue", "", 0)
            )
            namespace.kill()
            namespace.kill()
            with pytest.raises(ConnectionLost):
                sender.send(Message.build(value="refused").encode())
        with pytest.raises(StateError, match="is not running"):
            namespace.meter()
        namespace.start()
        with client_of(namespace) as client:
            (delivery,) = Receiver(client, "q", settled=True).receive(10)
        assert Message.parse(delivery.payload).read_value() == "accepted"
        assert namespace.call(lambda core: [row.path for row in core.store.entities.all()]) == ["q"]
    assert failures == []


def test_control_socket_in_a_deep_folder_is_removed_at_the_end(tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 20) / ("folder" * 20)
    file = folder / "control.sock"
    with LocalNamespace(folder=folder) as namespace, ControlSocket(namespace):
        assert file.stat().st_mode & 0o777 == 0o600
        request_action(folder, NamespaceAction.STOP)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", namespace.port))
        with LocalNamespace(folder=folder), pytest.raises(StateError, match="already in use"):
            request_action(folder, NamespaceAction.START)
        request_action(folder, NamespaceAction.START)
        assert namespace.meter() == {}
    assert not file.exists()
    with pytest.raises(StateError, match="No running emulator serves data folder"):
        request_action(folder, NamespaceAction.STOP)


def test_control_socket_of_a_process_that_ended_is_replaced(tmp_path: Path) -> None:
    namespace = LocalNamespace(folder=tmp_path)
    with socket.socket(socket.AF_UNIX) as ended:
        ended.bind(os.fspath(tmp_path / "control.sock"))
    with pytest.raises(StateError, match=r"No running emulator .* refused"):
        request_action(tmp_path, NamespaceAction.STOP)
    with namespace, ControlSocket(namespace) as first:
        request_action(tmp_path, NamespaceAction.STOP)
        with ControlSocket(namespace):
            first.close()  # which leaves the socket of the second
            request_action(tmp_path, NamespaceAction.START)


def test_names_that_an_older_version_allowed_do_not_prevent_a_start(tmp_path: Path) -> None:
    with LocalNamespace(folder=tmp_path) as namespace:
        namespace.create_queue("orders")
        namespace.create_topic("t")
        namespace.create_subscription("t", "s")
    with Store(tmp_path / "namespace.db") as store:
        write = store.entities._database.write
        write("UPDATE entity SET path = ? WHERE path = ?", ("orders_", "orders"))
        write(
            "UPDATE entity SET path = ? WHERE path = ?",
            ("-t/Subscriptions/s-", "t/Subscriptions/s"),
        )
        write("UPDATE entity SET path = ? WHERE path = ?", ("-t", "t"))
        write("UPDATE rule SET name = ?", ("-r",))

    with LocalNamespace(folder=tmp_path) as namespace:
        with client_of(namespace) as client:
            Sender(client, "orders_").send(Message.build(value="x").encode())
            assert len(Receiver(client, "orders_", settled=True).receive(1)) == 1
        rules = namespace.call(lambda core: core.entities.get("-t/Subscriptions/s-").rules)
        assert [rule.name for rule in rules.values()] == ["-r"]
        options = AdministrationOptions.from_connection_string(namespace.connection_string)
        with AdministrationClient(options) as admin:
            admin.set_status("orders_", EntityStatus.SEND_DISABLED)
            assert admin.get_queue("orders_").status == EntityStatus.SEND_DISABLED
            admin.delete_topic("-t")
