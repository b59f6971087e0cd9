"""A blocking AMQP client for Service Bus, for Spark workers and command-line tools.

    options = ClientOptions.from_connection_string(text)
    with Client(options) as client, Sender(client, "orders") as sender:
        sender.send_batch(messages)

`ClientOptions.from_host` takes a host and a credential of azure-identity instead.

Every call has a timeout, and raises an error of `pairbus.errors`.
"""

from pairbus.amqp.client.client import Client
from pairbus.amqp.client.management import Management
from pairbus.amqp.client.options import ClientOptions
from pairbus.amqp.client.receiver import AnySession, Receiver
from pairbus.amqp.client.sender import PendingDelivery, Sender
from pairbus.servicebus.proxy import Proxy
from pairbus.servicebus.tokens import (
    Credential,
    HeldCredential,
    SharedAccessKey,
    SharedAccessSignature,
)

__all__ = [
    "AnySession",
    "Client",
    "ClientOptions",
    "Credential",
    "HeldCredential",
    "Management",
    "PendingDelivery",
    "Proxy",
    "Receiver",
    "Sender",
    "SharedAccessKey",
    "SharedAccessSignature",
]
