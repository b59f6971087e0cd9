"""Connections of one process, kept between micro-batches. Spark uses its workers again."""

from functools import cache

from pairbus.amqp.client import Client, ClientOptions, Management, Sender


@cache
def client_of(options: ClientOptions) -> Client:
    """The connection to a namespace. It is made anew when it is lost."""
    return Client(options)


@cache
def sender_of(options: ClientOptions, path: str) -> Sender:
    return Sender(client_of(options), path)


@cache
def management_of(options: ClientOptions, path: str) -> Management:
    return Management(client_of(options), path)
