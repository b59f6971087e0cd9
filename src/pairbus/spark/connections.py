"""Connections of one thread. Spark reuses its workers, so they serve many micro-batches."""

import threading

from pairbus.amqp.client import Client, ClientOptions, Management, Sender


class _Connections(threading.local):
    """A client is not thread-safe, so each thread has its own: an application may run several
    redrives at once."""

    def __init__(self) -> None:
        self.clients: dict[ClientOptions, Client] = {}
        self.senders: dict[tuple[ClientOptions, str], Sender] = {}
        self.managements: dict[tuple[ClientOptions, str], Management] = {}


_connections = _Connections()


def client_for(options: ClientOptions) -> Client:
    """Return the client of this thread for a namespace. It reconnects when it is used again."""
    clients = _connections.clients
    if options not in clients:
        clients[options] = Client(options)
    return clients[options]


def sender_for(options: ClientOptions, path: str) -> Sender:
    """Return the sender of this thread for a queue or topic."""
    key = options, path
    senders = _connections.senders
    if key not in senders:
        senders[key] = Sender(client_for(options), path)
    return senders[key]


def management_for(options: ClientOptions, path: str) -> Management:
    """Return the management link of this thread for a queue."""
    key = options, path
    managements = _connections.managements
    if key not in managements:
        managements[key] = Management(client_for(options), path)
    return managements[key]


def close_all() -> None:
    """Close all connections of this thread. Workers need not call it: their connections end with
    the process."""
    for client in _connections.clients.values():
        client.close()
    _connections.clients.clear()
    _connections.senders.clear()
    _connections.managements.clear()
