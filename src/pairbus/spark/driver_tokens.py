"""Tokens for workers, acquired in the driver.

A credential often cannot be sent to another process, and should not be: workers need tokens, not
the secret behind them. The process that starts a query keeps the credential and serves its tokens
over a Unix socket in a private folder. The other processes of the driver, in which Spark plans
micro-batches, request them there, and put them into the partitions and the writer of each
micro-batch. These are serialized: tokens appear in no option, plan, log or checkpoint.
"""

import contextlib
import json
import logging
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import TypeAlias
from uuid import uuid4

from pairbus.amqp.client import ClientOptions, HeldCredential
from pairbus.errors import AmqpError, NotAuthorized, PairbusError, Unavailable
from pairbus.servicebus.tokens import SCOPE, Token, TokenSource, acquire_token

logger = logging.getLogger(__name__)

REUSE = 0.5
"""The fraction of its lifetime for which a token is used again. A task has the rest of it."""
TIMEOUT_S = 120.0

Tokens: TypeAlias = tuple[tuple[str, Token], ...]
"""Tokens with the keys of their sources."""

_delivered: dict[str, Token] = {}
"""The tokens that tasks brought to this process."""


@dataclass(frozen=True, slots=True)
class DriverTokens:
    """A token source for workers: the token that a task brought, or on the driver's machine that of
    the server. It holds no secret."""

    key: str
    address: str

    def token(self, audience: str, now: float) -> Token:
        token = _delivered.get(self.key)
        if token is not None and now < token.expires_at:
            return token
        return self.request()

    def request(self) -> Token:
        """Return a token of the server. Raises NotAuthorized or Unavailable."""
        try:
            with Client(self.address, family="AF_UNIX") as connection:
                connection.send_bytes(self.key.encode())
                if not connection.poll(TIMEOUT_S):
                    raise Unavailable(f"the driver sent no token within {TIMEOUT_S:g} s")
                answer = json.loads(connection.recv_bytes())
        except (OSError, EOFError) as exc:
            raise Unavailable("this process gets no token from the driver") from exc
        if "error" in answer:
            raise (NotAuthorized if answer["rejected"] else Unavailable)(answer["error"])
        return Token(**answer)


def request_tokens(namespaces: Iterable[ClientOptions]) -> Tokens:
    """Return the tokens that a task needs for some namespaces. In the driver."""
    sources = dict.fromkeys(
        options.tokens for options in namespaces if isinstance(options.tokens, DriverTokens)
    )
    tokens = []
    for source in sources:
        try:
            tokens.append((source.key, source.request()))
        except AmqpError as exc:  # the task may have one from before, or reports the problem
            logger.warning("No token for the tasks of a micro-batch: %s", exc)
    return tuple(tokens)


def deliver_tokens(tokens: Tokens) -> None:
    """Keep the tokens that a task brought for the connections of this process."""
    _delivered.update(tokens)


class TokenServer:
    """Serves tokens to the processes of the same user on this machine, until it is closed."""

    def __init__(self, folder: Path) -> None:
        """`folder` belongs to the user alone."""
        self._address = str(folder / "tokens")
        self._listener = Listener(self._address, family="AF_UNIX")
        self._sources: dict[str, _CachedTokens] = {}
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="pairbus tokens", daemon=True)
        self._thread.start()

    def replace_credential(self, options: ClientOptions) -> ClientOptions:
        """Return options that can be sent to workers. A credential is replaced by its tokens."""
        source = options.tokens
        if not isinstance(source, HeldCredential):
            return options
        known = (key for key, cached in self._sources.items() if cached.source == source)
        key = next(known, None) or uuid4().hex
        self._sources.setdefault(key, _CachedTokens(source))
        return replace(options, tokens=DriverTokens(key, self._address))

    def close(self) -> None:
        """Stop serving. Idempotent."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(OSError):  # wakes the thread
            Client(self._address, family="AF_UNIX").close()
        self._thread.join(TIMEOUT_S)
        self._listener.close()

    def _run(self) -> None:
        while not self._closed:
            with contextlib.suppress(OSError, EOFError), self._listener.accept() as connection:
                if not self._closed:
                    _answer(connection, self._sources)


@dataclass
class _CachedTokens:
    source: TokenSource
    token: Token | None = None
    reuse_until: float = field(default=0.0)

    def current(self, now: float) -> Token:
        if self.token is None or now >= self.reuse_until:
            self.token = acquire_token(self.source, SCOPE, now)
            self.reuse_until = now + (self.token.expires_at - now) * REUSE
        return self.token


def _answer(connection: Connection, sources: Mapping[str, _CachedTokens]) -> None:
    answer: dict[str, object]
    if not connection.poll(TIMEOUT_S):
        return
    cached = sources.get(connection.recv_bytes(64).decode(errors="replace"))
    try:
        if cached is None:
            raise NotAuthorized("the driver has no such credential")
        answer = asdict(cached.current(time.time()))
    except PairbusError as exc:
        text = exc.description if isinstance(exc, AmqpError) else str(exc)
        answer = {"error": text, "rejected": isinstance(exc, NotAuthorized)}
    connection.send_bytes(json.dumps(answer).encode())
