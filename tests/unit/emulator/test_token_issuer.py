"""Tokens of the emulator's issuer."""

import base64
import json
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jwt
import pytest

from pairbus.emulator.auth import GRACE_S, Authority, Right
from pairbus.emulator.token_issuer import Role, TokenIssuer
from pairbus.errors import ConfigurationError, NotAuthorized

NOW = 1_800_000_000
ISSUER = "https://sts.pairbus.invalid/"
AUDIENCE = "https://servicebus.azure.net"


@pytest.fixture
def issuer(tmp_path: Path) -> TokenIssuer:
    return TokenIssuer(tmp_path / "token-key.pem", now_ms=lambda: NOW * 1000)


@pytest.mark.rule("N3")
@pytest.mark.parametrize(
    ("roles", "rights"),
    [
        ([Role.SENDER], {Right.SEND}),
        (["Azure Service Bus Data Receiver"], {Right.LISTEN}),
        ([Role.SENDER, Role.RECEIVER], {Right.SEND, Right.LISTEN}),
        ([Role.OWNER], set(Right)),
        ([], set()),
    ],
)
def test_roles_of_a_token_are_rights(issuer: TokenIssuer, roles: list[str], rights: set[Right]):
    claims = issuer.verify(issuer.issue(*roles).token, NOW)

    assert (claims.path, claims.rights, claims.expires_at) == ("", rights, NOW + 3600)


def test_credential_without_roles_is_an_owner_for_the_audience_of_the_scope(issuer: TokenIssuer):
    token = issuer.credential().get_token("https://servicebus.azure.net/.default")

    assert issuer.verify(token.token, NOW).rights == set(Right)
    assert token.expires_on == NOW + 3600


def test_unknown_role_is_not_issued(issuer: TokenIssuer):
    with pytest.raises(ValueError, match="Reader"):
        issuer.credential("Reader")


def unsigned(issuer: TokenIssuer) -> str:
    return jwt.encode({"iss": ISSUER, "aud": AUDIENCE, "exp": NOW, "nbf": NOW}, None, "none")


def of_another_key(issuer: TokenIssuer) -> str:
    return TokenIssuer(issuer.key_file.with_name("other.pem")).issue(Role.OWNER).token


def signed_with_the_public_key(issuer: TokenIssuer) -> str:
    text = "a shared secret of at least 32 bytes"
    return jwt.encode({"iss": ISSUER, "aud": AUDIENCE, "exp": NOW, "nbf": NOW}, text, "HS256")


def with_more_roles(issuer: TokenIssuer) -> str:
    head, body, signature = issuer.issue(Role.SENDER).token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    claims["roles"] = [Role.OWNER]
    changed = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"{head}.{changed}.{signature}"


@pytest.mark.rule("N3")
@pytest.mark.parametrize(
    ("make", "code"),
    [
        (unsigned, "InvalidIssuer"),
        (of_another_key, "InvalidSignature"),
        (signed_with_the_public_key, "InvalidIssuer"),
        (with_more_roles, "InvalidSignature"),
        (lambda issuer: issuer.issue(audience="https://vault.azure.net").token, "InvalidAudience"),
        (lambda issuer: issuer.issue(lifetime_s=-GRACE_S - 1).token, "ExpiredToken"),
        (lambda issuer: issuer.issue(starts_in_s=GRACE_S + 1).token, "InvalidToken"),
        (lambda issuer: "no token", "InvalidIssuer"),
        (lambda issuer: "a.b.c", "InvalidIssuer"),
    ],
)
def test_token_that_is_not_valid_is_refused_without_quoting_it(
    issuer: TokenIssuer, make: Callable[[TokenIssuer], str], code: str
):
    token = make(issuer)

    with pytest.raises(NotAuthorized, match=f"^{code}: ") as refused:
        Authority([], verify_bearer=issuer.verify).claims_of_token(f"Bearer {token}", NOW)

    assert token not in str(refused.value)


def test_issuer_with_the_same_file_issues_tokens_for_the_same_namespaces(issuer: TokenIssuer):
    other = TokenIssuer(issuer.key_file, now_ms=lambda: NOW * 1000)

    assert issuer.verify(other.issue(Role.SENDER).token, NOW).rights == {Right.SEND}
    assert other.identity_header == issuer.identity_header
    assert stat.S_IMODE(issuer.key_file.stat().st_mode) == 0o600


def test_issuers_that_are_created_at_the_same_time_share_a_key(tmp_path: Path):
    file = tmp_path / "folder" / "token-key.pem"
    with ThreadPoolExecutor(8) as threads:
        issuers = list(threads.map(lambda _: TokenIssuer(file), range(8)))

    assert len({issuer.identity_header for issuer in issuers}) == 1
    assert list(file.parent.iterdir()) == [file]


def test_file_that_is_not_a_key_is_an_error(tmp_path: Path):
    file = tmp_path / "token-key.pem"
    file.write_text("nonsense")

    with pytest.raises(ConfigurationError, match="Delete it"):
        TokenIssuer(file)


@pytest.mark.rule("N3")
def test_shared_access_keys_are_refused_without_local_authentication(issuer: TokenIssuer):
    authority = Authority([], verify_bearer=issuer.verify, local_authentication=False)

    with pytest.raises(NotAuthorized, match=r"^LocalAuthDisabled: "):
        authority.claims_of_token("SharedAccessSignature sr=a&sig=b&se=1&skn=c", NOW)
    with pytest.raises(NotAuthorized, match=r"^LocalAuthDisabled: "):
        authority.claims_of_key("RootManageSharedAccessKey", "key")
    assert authority.claims_of_token(issuer.issue(Role.OWNER).token, NOW).rights == set(Right)
