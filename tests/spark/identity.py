"""A credential that is created in each process that needs it."""

import os
import threading
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pairbus.amqp.client import Credential


class AccessToken(NamedTuple):
    token: str
    expires_on: int


class Identity:
    """A credential that cannot be pickled, like those of azure-identity. It creates a file named
    after its process in a folder."""

    def __init__(self, folder: str) -> None:
        self._lock = threading.Lock()
        (Path(folder) / str(os.getpid())).touch()

    def get_token(self, *scopes: str, **kwargs: object) -> AccessToken:
        with self._lock:
            return AccessToken("header.payload.signature", int(time.time()) + 600)


def created_in_each_worker(folder: Path) -> Credential:
    """Return a credential with a factory. The folder shows which processes called the factory."""
    return Credential(partial(Identity, str(folder)))
