"""The security of the console, over real HTTP: known mistakes of such pages are tried."""

import json
import socket
import ssl
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from starlette.applications import Starlette

from pairbus.console.assembly import create_console
from pairbus.console.headers import SECURITY_HEADERS
from pairbus.console.roles import Access, ConsoleRole
from pairbus.console.routes import GuardedRoute
from pairbus.console.running import RunningConsole
from pairbus.emulator.connections.certificates import ensure_certificates
from pairbus.listeners import open_listener, tls_context
from tests.console_client import ConsoleClient, report
from tests.integration.console.raw_connections import raw
from tests.integration.console.sites import Site, Sites

pytestmark = pytest.mark.rule("O3")

PUBLIC = {"/", "/static/{name:path}", "/healthz", "/login"}
NO_DATA = {"/healthz": b'{"status":"ok"}'}
ROLES = (None, *ConsoleRole)
FORM_TYPES = ("application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain")


def all_routes(site: Site) -> list[GuardedRoute]:
    """Return the routes of the application that really runs."""
    starlette = site.application.app.inner
    assert isinstance(starlette, Starlette)
    found = []
    for route in starlette.router.routes:
        assert isinstance(route, GuardedRoute), f"{route} declares no access"
        found.append(route)
    return found


def method_of(route: GuardedRoute) -> str:
    assert route.methods is not None
    (method,) = route.methods
    return method


def path_of(route: GuardedRoute) -> str:
    return route.path.replace("{id}", "1").replace("{name:path}", "none.js")


def test_every_route_declares_an_access_and_few_are_public(site: Site):
    found = all_routes(site)

    assert len(found) >= 15
    assert {route.path for route in found if route.access is Access.PUBLIC} == PUBLIC


def test_every_route_is_checked_for_every_role(site: Site):
    """The live stream is closed before its end; all others answer."""
    for route in all_routes(site):
        for role in ROLES:
            client = site.client(role)
            path = path_of(route)
            if route.path == "/api/stream" and route.access.allows(role):
                with client.events() as events:
                    status = events.response.status
            else:
                status = client.request(method_of(route), path, None).status
            allowed = route.access.allows(role)
            label = f"{method_of(route)} {path} as {role}: {status}"
            if route.path == "/login":
                assert status == 401, label  # there is no token in the body
            elif allowed:
                assert status in (200, 400, 404), label
            else:
                assert status == (401 if role is None else 403), label


def test_public_routes_have_no_data(site: Site):
    for path, body in NO_DATA.items():
        assert site.client().get(path).body == body
    assert site.backlog.name not in site.client().get("/").body.decode()


def test_other_methods_and_paths_are_refused_without_a_token(site: Site):
    client = site.client()

    assert client.request("POST", "/api/state", {}).status == 405
    assert client.request("PUT", "/api/syphon", {}).status == 405
    assert client.request("OPTIONS", "/api/state").status == 405
    assert client.request("TRACE", "/api/state").status == 405
    assert client.request("HEAD", "/api/stream").status == 405
    assert client.get("/api/none").status == 404
    assert client.get("/api/state/").status == 404
    assert client.get("//api/state").status == 404
    assert client.get("/API/STATE").status == 404
    assert client.get("/static/../tokens.py").status == 404
    assert client.get("/static/%2e%2e/tokens.py").status == 404
    assert client.get("/static//etc/passwd").status == 404


def test_every_response_has_the_security_headers_and_no_cors(site: Site):
    operator = site.client("operator")
    answers = [
        operator.get("/api/state", Origin=f"http://{operator.host}"),
        operator.get("/"),
        site.client().get("/api/state"),
        site.client().get("/none"),
        site.client().request("POST", "/healthz", {}),
        ConsoleClient(site.port, host="evil.example").get("/"),
        operator.post("/api/syphon", b"{", Content_Type="application/json"),
    ]

    assert [answer.status for answer in answers] == [200, 200, 401, 404, 405, 421, 400]
    for answer in answers:
        for name, value in SECURITY_HEADERS.items():
            assert answer.headers[name.lower()] == value
        assert answer.headers["cache-control"] in ("no-store", "no-cache")
        assert not [name for name in answer.headers if name.startswith("access-control")]
        assert "server" not in answer.headers


def test_policy_allows_no_inline_code():
    policy = SECURITY_HEADERS["Content-Security-Policy"]

    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'")
    assert "frame-ancestors 'none'" in policy


def test_expired_token_is_refused(site: Site):
    hour_ago = time.time() - 3600
    token = site.signer.issue(ConsoleRole.OPERATOR, timedelta(minutes=59), hour_ago)
    client = ConsoleClient(site.port, token=token)

    assert client.get("/api/state").status == 401
    assert ConsoleClient(site.port).login(token).status == 401


def test_viewer_cannot_act_in_any_way(site: Site):
    viewer = site.browser("viewer")
    actions = [
        ("POST", "/api/syphon", {"action": "pause", "confirm": True}),
        ("POST", "/api/redrive", {"confirm": True}),
        ("DELETE", "/api/redrive/1?confirm=1", None),
        ("POST", "/api/paths/mark-healthy", {"path": "orders", "confirm": True}),
        ("POST", "/api/reports", report()),
        ("GET", "/api/peek?queue=0&bodies=1&confirm=1", None),
        ("GET", "/api/peek?queue=0&bodies=1&confirm=0", None),
    ]

    assert viewer.get("/api/state").json["role"] == "viewer"
    for method, path, body in actions:
        assert viewer.request(method, path, body).status == 403, path
    assert not (site.folder / "control.json").exists()


def test_cookie_is_out_of_reach_of_scripts_and_other_sites(site: Site):
    header = site.client().login(site.token("viewer")).headers["set-cookie"]

    assert header.startswith(f"pairbus-{site.port}=")
    for attribute in ("HttpOnly", "SameSite=strict", "Path=/", "Max-Age="):
        assert attribute in header
    assert "Domain" not in header


def test_form_of_another_site_cannot_act_even_with_the_cookie(site: Site):
    browser = site.browser("operator")
    form = b"action=pause&confirm=true"
    as_json = b'{"action": "pause", "confirm": true, "x": "="}'
    evil = {"Origin": "https://evil.example", "Sec_Fetch_Site": "cross-site"}

    statuses = [
        browser.post("/api/syphon", body, Content_Type=kind, X_Pairbus_Csrf=None, **headers).status
        for kind in (*FORM_TYPES, "application/json")
        for body in (form, as_json)
        for headers in (evil, {"Origin": "null"}, {})
    ]

    assert set(statuses) == {403}
    for kind in FORM_TYPES:  # with a CSRF value that leaked
        assert browser.post("/api/syphon", as_json, Content_Type=kind).status == 415
    assert not (site.folder / "control.json").exists()
    body = {"action": "pause", "confirm": True}
    assert browser.post("/api/syphon", body, Sec_Fetch_Site="same-origin").status == 200


def test_login_by_another_site_is_refused(site: Site):
    client = site.client()
    body = json.dumps({"token": site.token("operator")}).encode()

    for kind in FORM_TYPES:
        assert client.post("/login", body, Content_Type=kind).status == 415
    evil = {"Origin": "https://evil.example", "Content_Type": "application/json"}
    assert client.post("/login", body, **evil).status == 403
    assert client.cookies == {}


def test_name_that_was_rebound_to_this_machine_is_refused(site: Site):
    client = ConsoleClient(
        site.port, token=site.token("operator"), host=f"evil.example:{site.port}"
    )

    for path in ("/", "/healthz", "/api/state", "/none"):
        assert client.get(path).status == 421
    assert client.post("/login", {"token": site.token("operator")}).status == 421
    client.host = f"localhost:{site.port}"
    assert client.get("/api/state").status == 200


def test_second_host_header_is_refused(site: Site):
    head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"
    with raw(site, head) as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 400 ")


def test_login_link_works_once(site: Site):
    token = site.token("operator", once=True)
    browser = ConsoleClient(site.port)

    assert browser.login(token).status == 200
    assert ConsoleClient(site.port).login(token).status == 401
    assert ConsoleClient(site.port, token=token).get("/api/state").status == 401
    assert browser.get("/api/session").json["role"] == "operator"


def test_sender_token_cannot_log_in_or_read(site: Site):
    assert ConsoleClient(site.port).login(site.token("sender")).status == 401
    assert site.client("sender").get("/api/state").status == 403
    assert site.client("sender").get("/metrics").status == 403


def test_logout_ends_the_session_and_its_live_stream(site: Site):
    browser = site.browser("viewer")
    cookies = dict(browser.cookies)
    with browser.events() as events:
        snapshots = iter(events)
        assert next(snapshots)["role"] == "viewer"
        assert browser.post("/logout").status == 200
        browser.cookies = cookies
        assert browser.get("/api/state").status == 401
        # A change wakes the stream, which finds that its session has ended.
        sender = site.client("sender")
        sender.post("/api/reports", report(primary_name=site.backlog.name))
        assert list(snapshots) == []


def test_failed_logins_are_recorded_and_bounded(site: Site):
    for _ in range(30):
        assert site.client().login("pbc1.x.y").status == 401

    assert site.audit.count("failed login") == 10
    assert "pbc1.x.y" not in site.audit


def test_secrets_are_in_no_file(site: Site):
    token = site.token("operator")
    browser = ConsoleClient(site.port)
    browser.login(token)
    browser.post("/api/syphon", {"action": "pause", "confirm": True})
    (cookie,) = browser.cookies.values()

    written = b"".join(file.read_bytes() for file in site.folder.rglob("*") if file.is_file())

    assert b"syphon pause" in written
    assert browser.csrf
    for secret in (token, cookie, browser.csrf, token.rpartition(".")[2]):
        assert secret.encode() not in written


def test_console_with_tls_has_a_secure_cookie(sites: Sites, tmp_path: Path):
    files = ensure_certificates(tmp_path / "certificates", now=datetime.now(UTC))
    listener = open_listener("127.0.0.1", 0)
    options = sites.options(listener.getsockname()[1], secure=True)
    context = ssl.create_default_context(cafile=files.ca_file)
    with RunningConsole(
        create_console(options), listener, tls_context(str(files.server_file), None)
    ) as running:
        client = ConsoleClient(running.port, tls=context, host=f"localhost:{running.port}")
        token = options.signer.issue(ConsoleRole.VIEWER, timedelta(hours=1), time.time())

        header = client.login(token).headers["set-cookie"]

        assert header.startswith(f"__Host-pairbus-{running.port}=")
        assert "; Secure" in header
        assert client.get("/api/session").json["role"] == "viewer"
        assert not answers_without_tls(running.port)


def answers_without_tls(port: int) -> bool:
    with closing(socket.create_connection(("127.0.0.1", port), timeout=30)) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        try:
            return connection.recv(100).startswith(b"HTTP")
        except ConnectionError:
            return False
