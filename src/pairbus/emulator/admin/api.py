"""The administration API of a namespace, without I/O: a request in, its answer out.

| what | right, over the path that is asked for |
| --- | --- |
| create, update, delete, get, list, the namespace itself | Manage |
| get and list rules | Manage or Listen |
| forward to an entity (a token of its own, in a header of its own) | Manage over that entity |
| extensions | Manage over the namespace |

A mistake is answered as the service answers it, with an error that the SDK turns into one of its
own (the table is in `atom`). Rights are looked at first: who has none does not learn what exists.
"""

import logging
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from pairbus.emulator.admin import atom_writer
from pairbus.emulator.admin.paths import AdminPath, Resource, parse_path
from pairbus.emulator.admin.resources import Resources
from pairbus.emulator.admin.responses import AdminError, AdminRequest, to_datetime
from pairbus.emulator.auth import Authority, Claims, Right
from pairbus.emulator.connections.http import MAX_BODY, HttpRequest, HttpResponse
from pairbus.emulator.entities.registry import EntityRegistry
from pairbus.errors import ConfigurationError, EntityExists, EntityNotFound, NotAuthorized
from pairbus.servicebus.entity_paths import covers, normalize_path

MANAGEMENT_OPERATION = "management"
"""The kind under which requests are metered."""

Handler = Callable[[HttpRequest], HttpResponse]

_log = logging.getLogger(__name__)
_HOST = re.compile(r"(?:[\w.~-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?", re.ASCII)
_VERSION = re.compile(r"\d{4}-\d{2}(?:-\w{1,16})?", re.ASCII)


class AdministrationApi:
    """Answers requests over the entities of one namespace.

    What a request changed is on disk with the next commit: give its answer after that.

    `meter` is told of every request that had the right: the entity that it was about (empty: the
    namespace, or nothing that exists) and the kind. `extensions` are handlers for paths of our own,
    by prefix, such as `$pairbus/meter`; they are not metered.
    """

    def __init__(
        self,
        entities: EntityRegistry,
        authority: Authority,
        *,
        namespace: str,
        created_ms: int,
        meter: Callable[[str, str], None],
        extensions: Mapping[str, Handler] = MappingProxyType({}),
    ) -> None:
        self._entities = entities
        self._authority = authority
        self._namespace = namespace
        self._resources = Resources(entities, authority, to_datetime(created_ms))
        self._meter = meter
        longest_first = sorted(extensions.items(), key=lambda item: len(item[0]), reverse=True)
        self._extensions = [(normalize_path(prefix), handler) for prefix, handler in longest_first]

    def handle(self, request: HttpRequest, now_ms: int, *, scheme: str = "https") -> HttpResponse:
        """The answer to a request that came over `http` or `https`. Links in it lead to the host
        and port that the client wrote."""
        try:
            token = request.header("Authorization")
            claims = self._authority.claims_of_token("" if token is None else token, now_ms / 1000)
            for prefix, handler in self._extensions:
                if covers(prefix, request.path):
                    _demand(claims, "", Right.MANAGE)
                    return handler(request)
            place = parse_path(request.path)
            _demand(claims, request.path, *_rights(request.method, place))
            return self._metered(request, place, now_ms, scheme)
        except AdminError as exc:
            refusal = exc
        except NotAuthorized as exc:
            refusal = AdminError(401, f"Unauthorized. {exc.description}")
        except EntityExists as exc:
            refusal = AdminError(409, f"Conflict. {exc.description}")
        except EntityNotFound as exc:
            refusal = AdminError(404, f"Not Found. {exc.description}")
        except ConfigurationError as exc:
            refusal = AdminError(400, f"Bad Request. {exc}")
        _log.info("%s %r refused: %s", request.method, request.path, refusal)
        return HttpResponse(
            status=refusal.status,
            body=atom_writer.write_error(refusal.status, str(refusal)),
            content_type=atom_writer.ERROR_TYPE,
            headers=refusal.headers,
        )

    def _metered(
        self, request: HttpRequest, place: AdminPath | None, now_ms: int, scheme: str
    ) -> HttpResponse:
        path = "" if place is None else place.entity
        before = self._entities.find(path)
        try:
            if place is None:
                raise EntityNotFound(f"There is nothing at {request.path!r}.")
            return self._resources.answer(self._call(request, place, now_ms, scheme))
        finally:
            entity = self._entities.find(path) if before is None else before
            # Names that nobody has stay out of the meter: it would grow without end.
            self._meter("" if entity is None else entity.path, MANAGEMENT_OPERATION)

    def _call(
        self, request: HttpRequest, place: AdminPath, now_ms: int, scheme: str
    ) -> AdminRequest:
        if len(request.body) > MAX_BODY:
            raise AdminError(413, f"A body has at most {MAX_BODY} bytes, not {len(request.body)}.")
        host = request.header("Host")
        if host is None or _HOST.fullmatch(host) is None:
            raise ConfigurationError("the Host header is not a host and perhaps a port")
        version = request.query.get("api-version", atom_writer.API_VERSION)
        if _VERSION.fullmatch(version) is None:
            raise ConfigurationError(f"{version[:64]!r} is not an api-version such as 2021-05")
        site = atom_writer.ApiEndpoint(
            namespace=self._namespace, base_url=f"{scheme}://{host}", api_version=version
        )
        return AdminRequest(request, place, site, now_ms)


def _rights(method: str, place: AdminPath | None) -> tuple[Right, ...]:
    """The rights of which one is needed."""
    about_rules = place is not None and place.resource in (Resource.RULE, Resource.RULES)
    return (Right.MANAGE, Right.LISTEN) if about_rules and method == "GET" else (Right.MANAGE,)


def _demand(claims: Claims, path: str, *rights: Right) -> None:
    if not any(claims.allows(path, right) for right in rights):
        raise NotAuthorized(
            f"'{','.join(rights)}' claim(s) are required to perform this operation on "
            f"{path or 'the namespace'!r}; the token of {claims.who!r} has none of them for it."
        )
