"""The administration API of a namespace, without I/O: it takes requests and returns responses.

| operation | right that is required on the path |
| --- | --- |
| create, update, delete, get, list, namespace information | Manage |
| get and list rules | Manage or Listen |
| forward to an entity (with a token in a separate header) | Manage on that entity |
| extensions | Manage on the namespace |

Errors have the form of the service, so that the SDK raises its usual exceptions; `atom_writer`
lists them. Rights are checked first: a client without rights does not learn which entities exist.
"""

import logging
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from pairbus.emulator.admin import atom_writer
from pairbus.emulator.admin.identity import IDENTITY_PATH, IdentityEndpoint
from pairbus.emulator.admin.paths import AdminPath, Resource, parse_path
from pairbus.emulator.admin.resources import Resources
from pairbus.emulator.admin.responses import AdminError, AdminRequest
from pairbus.emulator.auth import Authority, Claims, Right
from pairbus.emulator.connections.http import MAX_BODY, HttpRequest, HttpResponse
from pairbus.emulator.entities.registry import EntityRegistry
from pairbus.emulator.entities.runtime_properties import to_datetime
from pairbus.emulator.tiers import UNLIMITED, NamespaceTier, Throttle
from pairbus.errors import Busy, ConfigurationError, EntityExists, EntityNotFound, NotAuthorized
from pairbus.servicebus.entity_paths import covers, normalize_path
from pairbus.servicebus.limits import THROTTLED

MANAGEMENT_OPERATION = "management"
"""The kind of operation under which requests are metered."""

ExtensionHandler = Callable[[HttpRequest], HttpResponse]

_log = logging.getLogger(__name__)
_HOST = re.compile(r"(?:[\w.~-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?", re.ASCII)
_VERSION = re.compile(r"\d{4}-\d{2}(?:-\w{1,16})?", re.ASCII)


class AdministrationApi:
    """Handles requests for the entities of one namespace.

    The changes of a request are durable after the next commit of the store: send its response then.

    `meter` is called for every authorized request, with the path of the entity and the kind of
    operation. The path is empty for the namespace, and for entities that do not exist. `extensions`
    are handlers by path prefix, such as `$pairbus/meter`; they are not metered. `identity` issues
    tokens, so it needs none.
    """

    def __init__(
        self,
        entities: EntityRegistry,
        authority: Authority,
        *,
        namespace: str,
        created_ms: int,
        meter: Callable[[str, str], None],
        extensions: Mapping[str, ExtensionHandler] = MappingProxyType({}),
        identity: IdentityEndpoint | None = None,
        tier: NamespaceTier = UNLIMITED,
        throttle: Throttle | None = None,
    ) -> None:
        self._identity = identity
        self._entities = entities
        self._authority = authority
        self._namespace = namespace
        self._resources = Resources(entities, authority, to_datetime(created_ms), tier)
        self._throttle = throttle
        self._meter = meter
        longest_first = sorted(extensions.items(), key=lambda item: len(item[0]), reverse=True)
        self._extensions = [(normalize_path(prefix), handler) for prefix, handler in longest_first]

    def handle(
        self,
        request: HttpRequest,
        now_ms: int,
        *,
        scheme: str = "https",
        token_now_ms: int | None = None,
    ) -> HttpResponse:
        """Return the response to a request that was received over `http` or `https`.

        Links in the response use the host and port of the request's Host header. `token_now_ms` is
        the time by which tokens expire, if it is not `now_ms`.
        """
        if self._identity is not None and request.path.lower() == IDENTITY_PATH:
            return self._identity.handle(request)
        try:
            token = request.header("Authorization")
            token_now = (now_ms if token_now_ms is None else token_now_ms) / 1000
            claims = self._authority.claims_of_token("" if token is None else token, token_now)
            for prefix, handler in self._extensions:
                if covers(prefix, request.path):
                    _require(claims, "", Right.MANAGE)
                    return handler(request)
            path = parse_path(request.path)
            _require(claims, request.path, *_required_rights(request.method, path))
            if self._throttle is not None:
                self._throttle.admit(MANAGEMENT_OPERATION)
            return self._handle_metered(request, path, now_ms, scheme)
        except AdminError as exc:
            error = exc
        except NotAuthorized as exc:
            error = AdminError(401, f"Unauthorized. {exc.description}")
        except EntityExists as exc:
            error = AdminError(409, f"Conflict. {exc.description}")
        except EntityNotFound as exc:
            error = AdminError(404, f"Not Found. {exc.description}")
        except Busy as exc:
            error = AdminError(503, exc.description, sub_code=THROTTLED)
        except ConfigurationError as exc:
            error = AdminError(400, f"Bad Request. {exc}")
        _log.info("%s %r failed: %s", request.method, request.path, error)
        return HttpResponse(
            status=error.status,
            body=atom_writer.write_error(error.status, str(error)),
            content_type=atom_writer.ERROR_TYPE,
            headers=error.headers,
        )

    def _handle_metered(
        self, request: HttpRequest, path: AdminPath | None, now_ms: int, scheme: str
    ) -> HttpResponse:
        entity_path = "" if path is None else path.entity
        entity_before = self._entities.find(entity_path)
        try:
            if path is None:
                raise EntityNotFound(f"No resource exists at {request.path!r}.")
            return self._resources.handle(self._admin_request(request, path, now_ms, scheme))
        finally:
            entity = self._entities.find(entity_path) if entity_before is None else entity_before
            # Paths of entities that do not exist would let the meter grow without limit.
            self._meter("" if entity is None else entity.path, MANAGEMENT_OPERATION)

    def _admin_request(
        self, request: HttpRequest, path: AdminPath, now_ms: int, scheme: str
    ) -> AdminRequest:
        if len(request.body) > MAX_BODY:
            raise AdminError(
                413, f"The body has {len(request.body)} bytes; the maximum is {MAX_BODY}."
            )
        host = request.header("Host")
        if host is None or _HOST.fullmatch(host) is None:
            raise ConfigurationError("The Host header is not a host with an optional port.")
        version = request.query.get("api-version", atom_writer.API_VERSION)
        if _VERSION.fullmatch(version) is None:
            raise ConfigurationError(f"{version[:64]!r} is not an api-version such as 2021-05.")
        endpoint = atom_writer.ApiEndpoint(
            namespace=self._namespace, base_url=f"{scheme}://{host}", api_version=version
        )
        return AdminRequest(request, path, endpoint, now_ms)


def _required_rights(method: str, path: AdminPath | None) -> tuple[Right, ...]:
    """Return the rights of which one is required."""
    names_rules = path is not None and path.resource in (Resource.RULE, Resource.RULES)
    return (Right.MANAGE, Right.LISTEN) if names_rules and method == "GET" else (Right.MANAGE,)


def _require(claims: Claims, path: str, *rights: Right) -> None:
    """Raise NotAuthorized unless the claims include one of the rights on the path."""
    if not any(claims.allows(path, right) for right in rights):
        raise NotAuthorized(
            f"'{','.join(rights)}' claim(s) are required to perform this operation on "
            f"{path or 'the namespace'!r}; the token of {claims.issuer!r} has none of them for it."
        )
