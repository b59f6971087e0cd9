"""The decision about each request."""

from datetime import timedelta

import pytest

from pairbus.console.guard import Denied, Guard, Identity, RequestFacts
from pairbus.console.roles import Access, ConsoleRole
from pairbus.console.sessions import MAX_SESSION_S, SessionStore, csrf_value
from pairbus.console.storage import ConsoleDatabase
from pairbus.console.tokens import TokenSigner

pytestmark = pytest.mark.rule("O3")

NOW = 1_000_000.0
HOST = "127.0.0.1:8710"
SIGNER = TokenSigner(b"k" * 32)


@pytest.fixture
def sessions() -> SessionStore:
    return SessionStore(ConsoleDatabase(None), NOW)


@pytest.fixture
def guard(sessions: SessionStore) -> Guard:
    return Guard(SIGNER, sessions, cookie="c", hosts=("Console.Example",))


def token(role: ConsoleRole, *, once: bool = False) -> str:
    return SIGNER.issue(role, timedelta(hours=1), NOW, once=once)


def facts(method: str = "GET", **headers: str) -> RequestFacts:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return RequestFacts(method=method, headers={"host": HOST} | named)


def bearer(role: ConsoleRole) -> str:
    return f"Bearer {token(role)}"


def logged_in(sessions: SessionStore, role: ConsoleRole) -> tuple[str, str]:
    """Return the Cookie header and the CSRF value of a new session."""
    content = SIGNER.verify(token(role), NOW)
    assert content is not None
    created = sessions.create(content, NOW)
    assert created is not None
    return f"other=1; c={created[0]}", csrf_value(created[0])


def denied(guard: Guard, request: RequestFacts, access: Access, now: float = NOW) -> int:
    with pytest.raises(Denied) as info:
        guard.check(request, access, now)
    return info.value.status


def test_request_without_token_is_denied(guard: Guard):
    for access in (Access.READ, Access.ACT, Access.REPORT):
        assert denied(guard, facts(), access) == 401


@pytest.mark.parametrize(
    "header", ["Bearer", "Bearer x", "Basic eDp5", "Bearer pbc1.e30.AAAA", "x" * 5000]
)
def test_invalid_authorization_is_denied(guard: Guard, header: str):
    assert denied(guard, facts(authorization=header), Access.READ) == 401


def test_invalid_token_is_not_replaced_by_the_cookie(guard: Guard, sessions: SessionStore):
    cookie, _ = logged_in(sessions, ConsoleRole.VIEWER)

    assert denied(guard, facts(authorization="Bearer x", cookie=cookie), Access.READ) == 401


def test_token_with_role_is_allowed(guard: Guard):
    identity = guard.check(
        facts("POST", authorization=bearer(ConsoleRole.OPERATOR)), Access.ACT, NOW
    )

    assert isinstance(identity, Identity)
    assert identity.label == f"operator {identity.actor}"


def test_viewer_cannot_act_or_report(guard: Guard):
    request = facts("POST", authorization=bearer(ConsoleRole.VIEWER))

    assert denied(guard, request, Access.ACT) == 403
    assert denied(guard, request, Access.REPORT) == 403


def test_sender_cannot_read_or_act(guard: Guard):
    request = facts(authorization=bearer(ConsoleRole.SENDER))

    assert denied(guard, request, Access.READ) == 403
    assert denied(guard, request, Access.ACT) == 403


def test_token_for_one_login_is_not_a_bearer_token(guard: Guard):
    request = facts(authorization=f"Bearer {token(ConsoleRole.OPERATOR, once=True)}")

    assert denied(guard, request, Access.READ) == 401


def test_expired_token_is_denied(guard: Guard):
    request = facts(authorization=bearer(ConsoleRole.OPERATOR))

    assert denied(guard, request, Access.READ, NOW + 3601) == 401


def test_session_reads_without_csrf_value(guard: Guard, sessions: SessionStore):
    cookie, _ = logged_in(sessions, ConsoleRole.VIEWER)

    assert guard.check(facts(cookie=cookie), Access.READ, NOW) is not None


def test_session_acts_with_its_csrf_value_only(guard: Guard, sessions: SessionStore):
    cookie, csrf = logged_in(sessions, ConsoleRole.OPERATOR)
    _, other = logged_in(sessions, ConsoleRole.OPERATOR)

    for value in ("", other, csrf[:-1], csrf + "x", "é"):
        request = facts("POST", cookie=cookie, x_pairbus_csrf=value)
        assert denied(guard, request, Access.ACT) == 403
    assert guard.check(facts("POST", cookie=cookie, x_pairbus_csrf=csrf), Access.ACT, NOW)


def test_session_ends_with_its_token(guard: Guard, sessions: SessionStore):
    cookie, _ = logged_in(sessions, ConsoleRole.VIEWER)

    assert denied(guard, facts(cookie=cookie), Access.READ, NOW + 3600) == 401


def test_session_ends_at_logout(guard: Guard, sessions: SessionStore):
    cookie, _ = logged_in(sessions, ConsoleRole.VIEWER)
    identity = guard.check(facts(cookie=cookie), Access.READ, NOW)
    assert identity is not None
    assert identity.session_secret is not None

    sessions.end(identity.session_secret)
    sessions.end(identity.session_secret)

    assert denied(guard, facts(cookie=cookie), Access.READ) == 401


@pytest.mark.parametrize("host", ["localhost:8710", "[::1]:99", "127.0.0.1", "console.example"])
def test_names_of_the_console_are_allowed(guard: Guard, host: str):
    assert guard.check(facts(host=host), Access.PUBLIC, NOW) is None


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "evil.example:8710", "127.0.0.1.evil.example", "localhost.evil", "x@y"],
)
def test_other_host_is_denied_also_for_public_routes(guard: Guard, host: str):
    assert denied(guard, facts(host=host), Access.PUBLIC) in (400, 421)


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("site", ["cross-site", "same-site", ""])
def test_request_of_another_site_is_denied(
    guard: Guard, sessions: SessionStore, method: str, site: str
):
    cookie, csrf = logged_in(sessions, ConsoleRole.OPERATOR)
    request = facts(method, cookie=cookie, x_pairbus_csrf=csrf, sec_fetch_site=site)

    assert denied(guard, request, Access.READ) == 403


@pytest.mark.parametrize(
    "origin",
    ["null", "https://evil.example", "http://127.0.0.1:9", "http://localhost:8710", "http://["],
)
def test_other_origin_is_denied(guard: Guard, origin: str):
    request = facts("POST", authorization=bearer(ConsoleRole.OPERATOR), origin=origin)

    assert denied(guard, request, Access.ACT) == 403
    assert denied(guard, facts("POST", origin=origin), Access.PUBLIC) == 403


def test_own_origin_is_allowed(guard: Guard):
    request = facts("POST", origin=f"http://{HOST}", sec_fetch_site="same-origin")

    assert guard.check(request, Access.PUBLIC, NOW) is None


def test_link_of_another_site_opens_the_page(guard: Guard):
    assert guard.check(facts(sec_fetch_site="cross-site"), Access.PUBLIC, NOW) is None


def test_login_link_is_for_one_login(sessions: SessionStore):
    content = SIGNER.verify(token(ConsoleRole.OPERATOR, once=True), NOW)
    assert content is not None

    created = sessions.create(content, NOW)

    assert created is not None
    assert created[1].expires_at == NOW + MAX_SESSION_S
    assert sessions.create(content, NOW) is None


def test_sender_cannot_log_in(sessions: SessionStore):
    content = SIGNER.verify(token(ConsoleRole.SENDER), NOW)
    assert content is not None

    assert sessions.create(content, NOW) is None
