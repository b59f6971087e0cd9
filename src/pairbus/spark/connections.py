"""Connections of one thread. Spark reuses its workers, so they serve many micro-batches."""

import threading
from collections import UserDict
from dataclasses import dataclass
from typing import TypeVar

from pairbus.amqp.client import Client, ClientOptions, Management, Sender

K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True, eq=False)
class Batching:
    """Knowledge of this thread about batches to one queue or topic."""

    refused: bool = False
    """Batches were rejected although each of their messages is accepted."""


class _PerThread(threading.local, UserDict[K, V]):
    """A mapping with other contents in each thread. A client is not thread-safe, and an application
    may run several redrives at once."""


_clients: _PerThread[ClientOptions, Client] = _PerThread()
_senders: _PerThread[tuple[ClientOptions, str], Sender] = _PerThread()
_batching: _PerThread[tuple[ClientOptions, str], Batching] = _PerThread()
_managements: _PerThread[tuple[ClientOptions, str], Management] = _PerThread()


def client_for(options: ClientOptions) -> Client:
    """Return the client of this thread for a namespace. It reconnects when it is used again."""
    if options not in _clients:
        _clients[options] = Client(options)
    return _clients[options]


def sender_for(options: ClientOptions, path: str) -> Sender:
    """Return the sender of this thread for a queue or topic."""
    key = options, path
    if key not in _senders:
        _senders[key] = Sender(client_for(options), path)
    return _senders[key]


def batching_for(options: ClientOptions, path: str) -> Batching:
    """Return the knowledge of this process about batches to a queue or topic."""
    return _batching.setdefault((options, path), Batching())


def management_for(options: ClientOptions, path: str) -> Management:
    """Return the management link of this thread for a queue."""
    key = options, path
    if key not in _managements:
        _managements[key] = Management(client_for(options), path)
    return _managements[key]


def close_all() -> None:
    """Close all connections of this thread. Workers need not call it: their connections end with
    the process."""
    for client in _clients.values():
        client.close()
    _clients.clear()
    _senders.clear()
    _batching.clear()
    _managements.clear()
