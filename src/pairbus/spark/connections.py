"""Connections of one process, kept between micro-batches. Spark uses its workers again."""

from pairbus.amqp.client import Client, ClientOptions, Management, Sender

_clients: dict[ClientOptions, Client] = {}
_senders: dict[tuple[ClientOptions, str], Sender] = {}
_managements: dict[tuple[ClientOptions, str], Management] = {}


def client_of(options: ClientOptions) -> Client:
    """The connection to a namespace. It is made anew when it is lost."""
    if options not in _clients:
        _clients[options] = Client(options)
    return _clients[options]


def sender_of(options: ClientOptions, path: str) -> Sender:
    key = options, path
    if key not in _senders:
        _senders[key] = Sender(client_of(options), path)
    return _senders[key]


def management_of(options: ClientOptions, path: str) -> Management:
    key = options, path
    if key not in _managements:
        _managements[key] = Management(client_of(options), path)
    return _managements[key]


def close_all() -> None:
    """Hang up. A worker need not: its connections end with it."""
    for client in _clients.values():
        client.close()
    for kept in (_clients, _senders, _managements):
        kept.clear()
