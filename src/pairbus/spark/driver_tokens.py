"""Tokens for workers, acquired in the driver.

A credential often cannot be sent to another process, and should not be: workers need tokens, not
the secret behind them. The process that starts a query keeps the credential and serves its tokens
over a Unix socket in a private folder. The other processes of the driver, in which Spark plans
micro-batches, request them there, and put them into the partitions and the writer of each
micro-batch. These are serialized: tokens appear in no option, plan, log or checkpoint.
"""

import json
import logging
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TypeAlias
from uuid import uuid4

from pairbus.amqp.client import ClientOptions, HeldCredential
from pairbus.errors import AmqpError, NotAuthorized, PairbusError, Unavailable
from pairbus.servicebus.tokens import SCOPE, Token, TokenSource, acquire_token
from pairbus.spark.local_server import LocalServer, request

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
            answer = json.loads(request(self.address, self.key.encode(), timeout_s=TIMEOUT_S))
        except OSError as exc:
            raise Unavailable(f"this process gets no token from the driver: {exc}") from exc
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
        self._sources: dict[str, _CachedTokens] = {}
        self._server = LocalServer(folder / "tokens", self._answer, timeout_s=TIMEOUT_S)

    def replace_credential(self, options: ClientOptions) -> ClientOptions:
        """Return options that can be sent to workers. A credential is replaced by its tokens."""
        source = options.tokens
        if not isinstance(source, HeldCredential):
            return options
        known = (key for key, cached in self._sources.items() if cached.source == source)
        key = next(known, None) or uuid4().hex
        self._sources.setdefault(key, _CachedTokens(source))
        return replace(options, tokens=DriverTokens(key, self._server.address))

    def close(self) -> None:
        """Stop serving. Idempotent."""
        self._server.close()

    def _answer(self, key: bytes) -> bytes:
        answer: dict[str, object]
        cached = self._sources.get(key.decode(errors="replace"))
        try:
            if cached is None:
                raise NotAuthorized("the driver has no such credential")
            answer = asdict(cached.current(time.time()))
        except PairbusError as exc:
            text = exc.description if isinstance(exc, AmqpError) else str(exc)
            answer = {"error": text, "rejected": isinstance(exc, NotAuthorized)}
        return json.dumps(answer).encode()


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
