"""Connections of one process. Spark reuses its workers, so they serve many micro-batches."""

from dataclasses import dataclass

from pairbus.amqp.client import Client, ClientOptions, Management, Sender


@dataclass(slots=True, eq=False)
class Batching:
    """Knowledge of this process about batches to one queue or topic."""

    refused: bool = False
    """Batches were rejected although each of their messages is accepted."""


_clients: dict[ClientOptions, Client] = {}
_senders: dict[tuple[ClientOptions, str], Sender] = {}
_batching: dict[tuple[ClientOptions, str], Batching] = {}
_managements: dict[tuple[ClientOptions, str], Management] = {}


def client_for(options: ClientOptions) -> Client:
    """Return the client of this process for a namespace. It reconnects when it is used again."""
    if options not in _clients:
        _clients[options] = Client(options)
    return _clients[options]


def sender_for(options: ClientOptions, path: str) -> Sender:
    """Return the sender of this process for a queue or topic."""
    key = options, path
    if key not in _senders:
        _senders[key] = Sender(client_for(options), path)
    return _senders[key]


def batching_for(options: ClientOptions, path: str) -> Batching:
    """Return the knowledge of this process about batches to a queue or topic."""
    return _batching.setdefault((options, path), Batching())


def management_for(options: ClientOptions, path: str) -> Management:
    """Return the management link of this process for a queue."""
    key = options, path
    if key not in _managements:
        _managements[key] = Management(client_for(options), path)
    return _managements[key]


def close_all() -> None:
    """Close all connections. Workers need not call it: their connections end with the process."""
    for client in _clients.values():
        client.close()
    _clients.clear()
    _senders.clear()
    _batching.clear()
    _managements.clear()
