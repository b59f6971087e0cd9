"""Tokens of the console."""

import base64
import json
from datetime import timedelta
from pathlib import Path

import pytest

from pairbus.console.key_file import load_signer
from pairbus.console.roles import Access, ConsoleRole
from pairbus.console.tokens import MAX_LIFETIME, TokenSigner
from pairbus.errors import ConfigurationError

NOW = 1_000_000.0
SIGNER = TokenSigner(b"k" * 32, new_id=lambda: "id-1")
HOUR = timedelta(hours=1)


def test_token_has_role_id_and_expiry():
    token = SIGNER.verify(SIGNER.issue(ConsoleRole.VIEWER, HOUR, NOW), NOW)

    assert token is not None
    assert (token.role, token.id, token.expires_at, token.once) == (
        ConsoleRole.VIEWER,
        "id-1",
        NOW + 3600,
        False,
    )


@pytest.mark.rule("O3")
def test_token_expires():
    text = SIGNER.issue(ConsoleRole.VIEWER, HOUR, NOW)

    assert SIGNER.verify(text, NOW + 3599) is not None
    assert SIGNER.verify(text, NOW + 3600) is None


@pytest.mark.rule("O3")
def test_token_of_another_key_is_not_valid():
    other = TokenSigner(b"o" * 32)

    assert SIGNER.verify(other.issue(ConsoleRole.OPERATOR, HOUR, NOW), NOW) is None


@pytest.mark.rule("O3")
def test_changed_payload_is_not_valid():
    prefix, payload, signature = SIGNER.issue(ConsoleRole.VIEWER, HOUR, NOW).split(".")
    values = json.loads(base64.urlsafe_b64decode(payload + "=="))
    values["role"] = "operator"
    forged = base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")

    assert SIGNER.verify(f"{prefix}.{payload}.{signature}", NOW) is not None
    assert SIGNER.verify(f"{prefix}.{forged}.{signature}", NOW) is None


@pytest.mark.parametrize(
    "text", ["", ".", "..", "pbc1..", "pbc1.e30.", "x" * 10_000, "pbc1.é.é", "pbc1.\ud800.x"]
)
def test_text_that_is_no_token_is_not_valid(text: str):
    assert SIGNER.verify(text, NOW) is None


@pytest.mark.parametrize("lifetime", [timedelta(), -HOUR, MAX_LIFETIME + HOUR])
def test_lifetime_out_of_range_is_refused(lifetime: timedelta):
    with pytest.raises(ConfigurationError, match="lifetime"):
        SIGNER.issue(ConsoleRole.VIEWER, lifetime, NOW)


def test_short_key_is_refused():
    with pytest.raises(ConfigurationError, match="16 bytes"):
        TokenSigner(b"k" * 16)


def test_key_file_is_created_once_and_private(tmp_path: Path):
    path = tmp_path / "console" / "key"

    text = load_signer(path).issue(ConsoleRole.SENDER, HOUR, NOW)

    assert path.stat().st_mode & 0o777 == 0o600
    assert load_signer(path).verify(text, NOW) is not None
    assert [file.name for file in path.parent.iterdir()] == ["key"]


@pytest.mark.rule("O3")
def test_key_file_that_others_can_read_is_refused(tmp_path: Path):
    path = tmp_path / "key"
    load_signer(path)
    path.chmod(0o644)

    with pytest.raises(ConfigurationError, match="other users"):
        load_signer(path)


@pytest.mark.rule("O3")
@pytest.mark.parametrize(
    ("access", "roles"),
    [
        (Access.PUBLIC, {None, *ConsoleRole}),
        (Access.READ, {ConsoleRole.VIEWER, ConsoleRole.OPERATOR}),
        (Access.ACT, {ConsoleRole.OPERATOR}),
        (Access.REPORT, {ConsoleRole.SENDER, ConsoleRole.OPERATOR}),
    ],
)
def test_access_of_each_role(access: Access, roles: set[ConsoleRole | None]):
    assert {role for role in (None, *ConsoleRole) if access.allows(role)} == roles
