"""Stand-ins for the Azure SDK's test helpers, as far as the tests of azure-servicebus use them."""

import base64
import json
import time
from typing import Any

from azure.core.credentials import AccessToken

from tests.sdk_suite.preparers import Preparer

__all__ = [
    "AzureMgmtRecordedTestCase",
    "AzureRecordedTestCase",
    "CachedResourceGroupPreparer",
    "RandomNameResourceGroupPreparer",
    "get_credential",
    "recorded_by_proxy",
    "set_custom_default_matcher",
]

TOKEN_LIFETIME_S = 3600


class AzureRecordedTestCase:
    """Base class of test classes. Nothing is recorded."""

    @staticmethod
    def await_prepared_test(test: Any) -> Any:
        """Return the test itself, which pytest awaits."""
        return test


AzureMgmtRecordedTestCase = AzureRecordedTestCase


class CachedResourceGroupPreparer(Preparer):
    """Passes no resource group: the emulator has none."""


RandomNameResourceGroupPreparer = CachedResourceGroupPreparer


def recorded_by_proxy(test: Any) -> Any:
    """Return the test itself, which runs against the emulator."""
    return test


def set_custom_default_matcher(**options: Any) -> None:
    """Do nothing: there are no recorded requests to match."""


def get_credential(*, is_async: bool = False) -> Any:
    """Return a credential with bearer tokens, which the namespaces of the tests trust."""
    return AsyncCredential() if is_async else Credential()


class Credential:
    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        expires_on = int(time.time()) + TOKEN_LIFETIME_S
        claims = {"aud": scopes[0].removesuffix("/.default"), "exp": expires_on}
        parts = ({"alg": "none", "typ": "JWT"}, claims, "unsigned")
        token = ".".join(_encoded(part) for part in parts)
        return AccessToken(token, expires_on)


class AsyncCredential:
    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        return Credential().get_token(*scopes, **options)

    async def __aenter__(self) -> "AsyncCredential":
        return self

    async def __aexit__(self, *exc: object) -> None:
        pass

    async def close(self) -> None:
        pass


def _encoded(part: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
