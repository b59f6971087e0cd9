"""Credentials of the emulator: one that is created in each process, and one of the driver."""

import os
from functools import partial
from pathlib import Path

from pairbus.amqp.client import Credential
from pairbus.emulator.token_issuer import IssuedToken, TokenIssuer


class Identity:
    """A credential that cannot be pickled, like those of azure-identity. It creates a file named
    after its process in a folder."""

    def __init__(self, key_file: str, folder: str) -> None:
        self._credential = TokenIssuer(key_file).credential()
        (Path(folder) / str(os.getpid())).touch()

    def get_token(self, *scopes: str, **kwargs: object) -> IssuedToken:
        return self._credential.get_token(*scopes)


def created_in_each_worker(issuer: TokenIssuer, folder: Path) -> Credential:
    """Return a credential with a factory. The folder shows which processes called the factory."""
    return Credential(partial(Identity, str(issuer.key_file), str(folder)))


class RecordedCredential:
    """A credential that keeps the tokens that it returned. They are valid for a few seconds."""

    def __init__(self, issuer: TokenIssuer) -> None:
        self.tokens: list[str] = []
        self._credential = issuer.credential(lifetime_s=3)

    def get_token(self, *scopes: str, **kwargs: object) -> IssuedToken:
        token = self._credential.get_token(*scopes)
        self.tokens.append(token.token)
        return token
