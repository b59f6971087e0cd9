"""Tokens of our signer and of the SDK are accepted, and refused if anything is wrong."""

import base64
import hashlib
import hmac
import json
import math
from urllib.parse import quote, quote_plus

import pytest
from azure.servicebus._pyamqp.utils import generate_sas_token

from pairbus.emulator.auth import GRACE_S, MAX_TOKEN, Authority, Claims, Right, SharedAccessRule
from pairbus.errors import ConfigurationError, NotAuthorized
from pairbus.servicebus.tokens import sign_token

NOW = 1_700_000_000
KEY = "cHJpbWFyeS1rZXktb2YtdGhlLXJvb3QtcnVsZS0wMDE="
SECOND = "c2Vjb25kYXJ5LWtleS1vZi10aGUtcm9vdC1ydWxlLTI="
SEND_KEY = "c2VuZC1vbmx5LWtleS1vZi1vbmUtcXVldWUtMDAwMDM="
ALL = frozenset(Right)

ROOT = SharedAccessRule(name="RootManageSharedAccessKey", primary_key=KEY, secondary_key=SECOND)
SENDER = SharedAccessRule(name="sender", primary_key=SEND_KEY, rights=frozenset({Right.SEND}))


def entity_rules(path: str) -> list[SharedAccessRule]:
    return [SENDER] if path in ("orders", "events") else []


AUTHORITY = Authority([ROOT], entity_rules=entity_rules)


def signed(
    resource: str,
    key: str = KEY,
    name: str = "RootManageSharedAccessKey",
    expiry: int = NOW + 60,
    *,
    over: str | None = None,
) -> str:
    """Return a handmade signature. `over` is the signed text, by default `resource`."""
    text = f"{resource if over is None else over}\n{expiry}".encode()
    digest = hmac.new(key.encode(), text, hashlib.sha256).digest()
    sig = quote_plus(base64.b64encode(digest))
    return f"SharedAccessSignature sr={resource}&sig={sig}&se={expiry}&skn={name}"


def jwt(**claims: object) -> str:
    parts = [{"alg": "RS256", "typ": "JWT"}, claims]
    coded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts]
    return b".".join([*coded, b"c2lnbmF0dXJl"]).decode()


@pytest.mark.parametrize("key", [KEY, SECOND])
@pytest.mark.parametrize("make", [sign_token, generate_sas_token])
@pytest.mark.parametrize(
    ("audience", "path"),
    [
        ("sb://localhost:5671/Orders", "orders"),
        ("https://localhost:5671", ""),
        ("https://localhost:5671/", ""),
        ("sb://localhost:5671/a/b/Subscriptions/c", "a/b/subscriptions/c"),
        ("sb://localhost/größe", "größe"),
    ],
)
def test_token_of_either_key_grants_its_rights(make, audience: str, path: str, key: str):
    token = make(audience, "RootManageSharedAccessKey", key, NOW + 60)

    claims = AUTHORITY.claims_of_token(token, NOW)

    assert claims == Claims(
        issuer="RootManageSharedAccessKey", path=path, rights=ALL, expires_at=NOW + 60
    )


@pytest.mark.parametrize(
    "resource",
    [
        "sb%3A%2F%2Flocalhost%3A5671%2Forders",
        "sb%3a%2f%2flocalhost%3a5671%2forders",
        "sb%3a%2F%2flocalhost%3a5671%2Forders%2f",
        "https%3A%2F%2Flocalhost%2FORDERS",
        "localhost%2Forders",
        "localhost:5671/orders",
        "sb://localhost:5671/orders/",
        "amqps%3A%2F%2Fns.servicebus.windows.net%2Forders",
    ],
)
def test_resource_can_be_written_in_several_forms(resource: str):
    assert AUTHORITY.claims_of_token(signed(resource), NOW).path == "orders"


@pytest.mark.parametrize("over", ["sb%3A%2F%2Fh%2Fq%2Fx", "sb%3a%2f%2fh%2fq%2fx"])
def test_unencoded_resource_can_be_signed_in_encoded_form(over: str):
    assert AUTHORITY.claims_of_token(signed("sb://h/q/x", over=over), NOW).path == "q/x"


@pytest.mark.parametrize("name", ["my rule", "a+b", "50%", "ü", "a%20b"])
def test_rule_name_with_special_characters_is_found_in_any_encoding(name: str):
    authority = Authority([SharedAccessRule(name=name, primary_key=KEY)])

    for token in (
        sign_token("sb://h/q", name, KEY, NOW + 60),
        generate_sas_token("sb://h/q", name, KEY, NOW + 60),
        signed("sb%3A%2F%2Fh%2Fq", name=quote(name)),
    ):
        assert authority.claims_of_token(token, NOW).issuer == name


def test_entity_rule_signs_for_its_entity_and_paths_below():
    for path in ("orders", "Orders/$management", "events/Subscriptions/s"):
        token = sign_token(f"sb://h/{path}", "sender", SEND_KEY, NOW + 60)

        claims = AUTHORITY.claims_of_token(token, NOW)

        assert claims.path == path.lower().removesuffix("/$management")
        assert claims.rights == {Right.SEND}


@pytest.mark.parametrize("audience", ["sb://h", "sb://h/other", "sb://h/orders2", "https://h/$x"])
def test_entity_rule_signs_for_no_other_path(audience: str):
    token = sign_token(audience, "sender", SEND_KEY, NOW + 60)

    with pytest.raises(NotAuthorized, match="InvalidSignature"):
        AUTHORITY.claims_of_token(token, NOW)


@pytest.mark.parametrize(
    ("token_path", "path", "right", "allowed"),
    [
        ("", "orders", Right.MANAGE, True),
        ("", "", Right.MANAGE, True),
        ("orders", "ORDERS", Right.LISTEN, True),
        ("orders", "orders/$DeadLetterQueue", Right.LISTEN, True),
        ("orders", "orders2", Right.LISTEN, False),
        ("orders", "", Right.MANAGE, False),
        ("t/Subscriptions/s", "t/subscriptions/s/$management", Right.LISTEN, True),
        ("t/Subscriptions/s", "t", Right.SEND, False),
    ],
)
def test_claims_cover_paths_below_their_path(
    token_path: str, path: str, right: Right, allowed: bool
):
    claims = Claims(issuer="x", path=token_path, rights=ALL)

    assert claims.allows(path, right) is allowed


def test_claims_allow_only_their_rights():
    claims = Claims(issuer="x", path="", rights=frozenset({Right.LISTEN}))

    assert claims.allows("q", Right.LISTEN)
    assert not claims.allows("q", Right.SEND)
    assert not claims.allows("q", Right.MANAGE)


def test_expired_token_is_valid_for_five_more_minutes():
    token = sign_token("sb://h/q", ROOT.name, KEY, NOW)

    claims = AUTHORITY.claims_of_token(token, NOW + GRACE_S - 1)

    assert not claims.expired(NOW + GRACE_S - 1)
    assert claims.expired(NOW + GRACE_S)
    assert claims.expired(NOW, grace_s=0)
    with pytest.raises(NotAuthorized, match="ExpiredToken"):
        AUTHORITY.claims_of_token(token, NOW + GRACE_S)


GOOD = sign_token("sb://h/orders", "RootManageSharedAccessKey", KEY, NOW + 60)


@pytest.mark.parametrize(
    "token",
    [
        GOOD.replace("se=", "se=1"),
        GOOD.replace("orders", "other"),
        GOOD.replace("skn=Root", "skn=root"),
        sign_token("sb://h/orders", "RootManageSharedAccessKey", KEY[:-1], NOW + 60),
        sign_token("sb://h/orders", "unknown", KEY, NOW + 60),
        sign_token("sb://h/orders", "sender", KEY, NOW + 60),
        signed("sb%3A%2F%2Fh%2Forders", over="sb%3A%2F%2Fh"),
    ],
)
def test_modified_or_wrongly_signed_token_is_refused(token: str):
    with pytest.raises(NotAuthorized, match="InvalidSignature"):
        AUTHORITY.claims_of_token(token, NOW)


@pytest.mark.parametrize(
    "token",
    [
        "SharedAccessSignature ",
        "SharedAccessSignature sr=x",
        GOOD.replace("&se=", "&sf="),
        GOOD + "&se=99999999999",
        GOOD + "&SR=sb%3A%2F%2Fh",
        GOOD.replace("sig=", "sig=*"),
        GOOD.replace("se=", "se=-"),
        GOOD.replace("se=", "se=9e9"),
        GOOD.replace("se=", "se=" + "9" * 400),
        GOOD.replace("se=17", "se=\u0661\u0667"),
        "SharedAccessSignature " + "&" * 1000,
        "SharedAccessSignature " + "x" * MAX_TOKEN,
    ],
)
def test_malformed_token_is_refused(token: str):
    with pytest.raises(NotAuthorized, match="MalformedToken"):
        AUTHORITY.claims_of_token(token, NOW)


def test_missing_token_is_refused():
    with pytest.raises(NotAuthorized, match="MissingToken"):
        AUTHORITY.claims_of_token("  ", NOW)


def test_scheme_of_a_signature_is_case_insensitive():
    assert AUTHORITY.claims_of_token(GOOD.replace("SharedAccess", "SHAREDaccess", 1), NOW).path


def test_signature_sent_as_a_bearer_token_is_verified_as_a_signature():
    assert AUTHORITY.claims_of_token("Bearer " + GOOD, NOW) == AUTHORITY.claims_of_token(GOOD, NOW)
    with pytest.raises(NotAuthorized, match="InvalidSignature"):
        Authority([], trust_bearer_tokens=True).claims_of_token("Bearer " + GOOD, NOW)


def test_bearer_scheme_without_a_token_is_a_missing_token():
    with pytest.raises(NotAuthorized, match="MissingToken"):
        Authority([], trust_bearer_tokens=True).claims_of_token("Bearer ", NOW)


@pytest.mark.parametrize("token", [jwt(exp=NOW + 60), "Bearer " + jwt(exp=NOW + 60), "secret"])
def test_token_of_another_issuer_is_refused_with_advice(token: str):
    with pytest.raises(NotAuthorized, match="trust_bearer_tokens") as refused:
        AUTHORITY.claims_of_token(token, NOW)

    assert token not in str(refused.value)


@pytest.mark.parametrize(
    ("token", "expiry"),
    [
        (jwt(exp=NOW + 60), NOW + 60),
        ("Bearer " + jwt(exp=NOW + 60), NOW + 60),
        (jwt(), math.inf),
        (jwt(exp="never"), math.inf),
        (jwt(exp=10**40), math.inf),
        ("a.b.c", math.inf),
        ("a.W10.c", math.inf),
        ("anything", math.inf),
    ],
)
def test_namespace_that_trusts_bearer_tokens_accepts_them_unverified(token: str, expiry: float):
    claims = Authority([], trust_bearer_tokens=True).claims_of_token(token, NOW)

    assert claims == Claims(issuer="bearer", path="", rights=ALL, expires_at=expiry)


def test_trusted_bearer_token_expires_and_signatures_are_still_verified():
    authority = Authority([], trust_bearer_tokens=True)

    with pytest.raises(NotAuthorized, match="ExpiredToken"):
        authority.claims_of_token(jwt(exp=NOW - 301), NOW)
    with pytest.raises(NotAuthorized, match="InvalidSignature"):
        authority.claims_of_token(GOOD, NOW)


@pytest.mark.parametrize("key", [KEY, SECOND])
def test_rule_name_and_key_grant_the_rights_of_the_rule(key: str):
    claims = AUTHORITY.claims_of_key("RootManageSharedAccessKey", key)

    assert claims == Claims(issuer="RootManageSharedAccessKey", path="", rights=ALL)
    assert not claims.expired(1e18)


@pytest.mark.parametrize(
    ("name", "key"),
    [(ROOT.name, SEND_KEY), ("other", KEY), (ROOT.name, ""), ("sender", SEND_KEY), ("", "ü")],
)
def test_wrong_name_or_key_is_refused_and_not_shown(name: str, key: str):
    with pytest.raises(NotAuthorized) as refused:
        AUTHORITY.claims_of_key(name, key)

    assert not key or key not in str(refused.value)


def test_no_error_shows_a_token_or_a_key():
    secrets = (KEY, SECOND, SEND_KEY, "sig=")
    tokens = [GOOD.replace("se=", "se=1"), GOOD + "&se=1", GOOD.replace("sig=", "sig=*")]
    tokens += [sign_token("sb://h", ROOT.name, KEY, NOW - 9999), jwt(exp=1)]

    for token in tokens:
        with pytest.raises(NotAuthorized) as refused:
            AUTHORITY.claims_of_token(token, NOW)

        assert not [secret for secret in (*secrets, token) if secret in str(refused.value)]
    assert not [secret for secret in secrets if secret in repr(ROOT) + repr(SENDER)]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"name": ""}, "1 to 256"),
        ({"name": "x" * 257}, "1 to 256"),
        ({"primary_key": ""}, "primary key"),
        ({"secondary_key": ""}, "secondary key"),
        ({"rights": frozenset()}, "grants no right"),
        ({"rights": frozenset({Right.MANAGE, Right.SEND})}, "must also grant Send and Listen"),
    ],
)
def test_invalid_rule_is_refused(settings: dict[str, object], reason: str):
    with pytest.raises(ConfigurationError, match=reason):
        SharedAccessRule(**{"name": "r", "primary_key": KEY, **settings})


@pytest.mark.parametrize("resource", ["sb://other/orders", "other/orders", "https://other"])
def test_token_for_another_host_is_refused(resource: str):
    addresses: list[str] = []

    def accepts(address: str) -> bool:
        addresses.append(address)
        return "other" not in address

    authority = Authority([ROOT], accepts_host=accepts)
    token = sign_token(resource, ROOT.name, KEY, NOW + 60)
    with pytest.raises(NotAuthorized, match="InvalidAudience"):
        authority.claims_of_token(token, NOW)
    own = sign_token(resource.replace("other", "own"), ROOT.name, KEY, NOW + 60)
    assert authority.claims_of_token(own, NOW).issuer == ROOT.name
    assert all(address.startswith(("sb://", "https://")) for address in addresses)


def test_host_is_compared_after_the_signature():
    """A client without a key does not learn the names of the namespace."""
    authority = Authority([ROOT], accepts_host=lambda _: False)
    with pytest.raises(NotAuthorized, match="InvalidSignature"):
        authority.claims_of_token(sign_token("sb://h/q", ROOT.name, "wrong", NOW + 60), NOW)
