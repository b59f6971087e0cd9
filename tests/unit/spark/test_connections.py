"""Each thread has its own connections."""

import threading

from pairbus.amqp.client import Client, ClientOptions
from pairbus.spark.connections import client_for, close_all

OPTIONS = ClientOptions(host="one.example")


def test_thread_gets_the_same_client_again_and_another_thread_gets_another():
    clients: list[Client] = []
    thread = threading.Thread(target=lambda: clients.append(client_for(OPTIONS)))
    thread.start()
    thread.join()

    client = client_for(OPTIONS)
    assert client_for(OPTIONS) is client
    assert clients[0] is not client
    close_all()
    assert client_for(OPTIONS) is not client
    close_all()
