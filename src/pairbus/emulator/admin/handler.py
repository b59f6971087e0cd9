"""The handler of HTTP requests to a namespace: administration, control and identity."""

from pairbus.emulator.admin.api import AdministrationApi
from pairbus.emulator.admin.control import CONTROL_PREFIX, ControlApi
from pairbus.emulator.admin.identity import IdentityEndpoint
from pairbus.emulator.connections.protocols import RequestHandler
from pairbus.emulator.runtime import NamespaceRuntime
from pairbus.emulator.token_issuer import TokenIssuer


def administration_handler(
    runtime: NamespaceRuntime, created_ms: int, issuer: TokenIssuer
) -> RequestHandler:
    """Return the handler for a namespace that was created at a time."""
    control = ControlApi(runtime.faults, runtime.meter, runtime.clock, runtime.advance)
    admin = AdministrationApi(
        runtime.entities,
        runtime.authority,
        namespace=runtime.name,
        created_ms=created_ms,
        meter=runtime.meter.add_without_message,
        extensions={CONTROL_PREFIX: control.handle},
        identity=IdentityEndpoint(issuer),
        tier=runtime.tier,
        throttle=runtime.throttle,
    )
    clock = runtime.clock
    return lambda request, scheme: admin.handle(
        request, clock.now_ms(), scheme=scheme, token_now_ms=clock.machine_ms()
    )
