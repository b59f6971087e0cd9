"""Runs the syphon inside the application's process (`enable_syphon=True`)."""

import asyncio
import threading
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential

from pairbus.amqp.client import ClientOptions
from pairbus.errors import ConfigurationError
from pairbus.options import SendAvailabilityOptions
from pairbus.pairing import sdk_clients
from pairbus.pairing.client_state import ClientState, PartnerAction, PartnerMonitor
from pairbus.pairing.sdk_clients import SdkClient
from pairbus.pairing.state import PairingState
from pairbus.servicebus.addresses import split_host
from pairbus.servicebus.tokens import (
    HeldCredential,
    SharedAccessKey,
    SharedAccessSignature,
    TokenSource,
)

if TYPE_CHECKING:
    from pairbus.syphon.options import SyphonOptions
    from pairbus.syphon.query import Syphon

CHECK_INTERVAL_S = 0.2
RESTART_PAUSE_S, MAX_RESTART_PAUSE_S = 1.0, 60.0
"""The pause before a failed syphon is restarted, which doubles up to the maximum."""

Fault = Callable[[BaseException], object]
"""Faults a namespace client. Called in a thread of the embedded syphon."""


class EmbeddedSyphon:
    """Runs a syphon in a background thread for as long as the pairing is open, and restarts it when
    it fails. A second thread faults a client whose partner is down for 5 seconds; when both clients
    are down, the syphon stops."""

    def __init__(
        self,
        options: "SyphonOptions",
        pairing: PairingState,
        *,
        fault_primary: Fault,
        fault_secondary: Fault,
    ) -> None:
        self.syphon: Syphon | None = None
        """The syphon, while it runs."""
        self._options = options
        self._pairing = pairing
        self._fault_primary = fault_primary
        self._fault_secondary = fault_secondary
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=target, name=f"pairbus {name}", daemon=True)
            for target, name in (
                (self._keep_running, "syphon"),
                (self._monitor_partners, "partner monitor"),
            )
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Request the end of the syphon. Does not wait."""
        self._stopping.set()

    def wait(self, seconds: float) -> bool:
        """Wait until the syphon has stopped, and return whether it has."""
        deadline = monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _monitor_partners(self) -> None:
        primary, secondary = self._pairing.primary, self._pairing.secondary
        monitor = PartnerMonitor(primary, secondary)
        while not self._stopping.wait(CHECK_INTERVAL_S):
            match monitor.check(monotonic()):
                case PartnerAction.STOP:
                    self._stopping.set()
                case PartnerAction.FAULT_PRIMARY:
                    self._fault_primary(_partner_error(secondary))
                case PartnerAction.FAULT_SECONDARY:
                    self._fault_secondary(_partner_error(primary))

    def _keep_running(self) -> None:
        pause_s = RESTART_PAUSE_S
        while not self._stopping.is_set():
            started_at = monotonic()
            error = self._run()
            if self._stopping.is_set():
                break
            self._pairing.syphon_stopped(error)
            if monotonic() - started_at > MAX_RESTART_PAUSE_S:
                pause_s = RESTART_PAUSE_S
            self._stopping.wait(pause_s)
            pause_s = min(2 * pause_s, MAX_RESTART_PAUSE_S)
        self._pairing.syphon_stopped(None)

    def _run(self) -> BaseException:
        """Run a syphon until it fails or must stop, and return the error."""
        from pairbus.syphon.query import Syphon

        syphon = Syphon(self._options)
        try:
            syphon.start()
            self.syphon = syphon
            self._pairing.syphon_started()
            while not self._stopping.wait(CHECK_INTERVAL_S) and syphon.status().running:
                pass
            return RuntimeError(syphon.status().failure or "the query ended without an error")
        except Exception as exc:  # noqa: BLE001  any error of Spark is reported, and retried
            return exc
        finally:
            self.syphon = None
            syphon.stop()


def _partner_error(down: ClientState) -> BaseException:
    error = down.error() or RuntimeError("the partner client is down")
    error.add_note(f"The client of {down.name} was closed or faulted, but its partner was not")
    return error


# The options of the syphon.


def syphon_options(
    primary: SdkClient,
    secondary: SdkClient,
    options: SendAvailabilityOptions,
    queues: tuple[str, ...],
    loop: asyncio.AbstractEventLoop | None = None,
) -> "SyphonOptions":
    """Return the options of a syphon for two clients of the SDK; `loop` is the event loop of
    asynchronous clients. Raises ConfigurationError if Spark is not installed, or if a setting of a
    client cannot be sent to Spark workers."""
    try:
        from pairbus.syphon.options import SyphonOptions
        from pairbus.syphon.query import Syphon  # noqa: F401  fails now if Spark is missing
    except ImportError as exc:
        raise ConfigurationError(f"enable_syphon=True cannot start a syphon. {exc}") from exc
    given: object = options.syphon_options
    if given is None:
        return SyphonOptions(
            primary=client_options(primary, "primary", loop),
            secondary=client_options(secondary, "secondary", loop),
            primary_name=options.primary_name,
            queues=queues,
            telemetry=options.telemetry,
        )
    if not isinstance(given, SyphonOptions):
        raise ConfigurationError(
            f"syphon_options must be a pairbus.syphon.SyphonOptions, not {type(given).__name__}"
        )
    return given


def client_options(
    client: SdkClient, role: str, loop: asyncio.AbstractEventLoop | None = None
) -> ClientOptions:
    """Return the options with which our AMQP client connects like an SDK client. Raises
    ConfigurationError."""
    if sdk_clients.ssl_context_of(client) is not None:
        raise _not_supported(role, "its SSL context cannot be sent to Spark workers")
    host, port = split_host(client.fully_qualified_namespace)
    dial = None
    if endpoint := sdk_clients.custom_endpoint_of(client):
        dial, port = split_host(endpoint)
    return ClientOptions(
        host=host,
        port=port,
        endpoint_host=dial,
        tls=sdk_clients.uses_tls(client),
        transport="websocket" if sdk_clients.uses_websockets(client) else "tcp",
        proxy=sdk_clients.proxy_of(client),
        ca_file=sdk_clients.ca_file_of(client),
        tokens=_tokens(client, loop),
    )


def _tokens(client: SdkClient, loop: asyncio.AbstractEventLoop | None) -> TokenSource:
    credential = sdk_clients.credential_of(client)
    if isinstance(credential, AzureNamedKeyCredential):
        return SharedAccessKey(*credential.named_key)
    if isinstance(credential, AzureSasCredential):
        return SharedAccessSignature(credential.signature)
    match sdk_clients.connection_string_credential_of(client):
        case (name, key):
            return SharedAccessKey(name, key)
        case str(signature):
            return SharedAccessSignature(signature)
    timeout_s = sdk_clients.REQUEST_TIMEOUT_S
    return HeldCredential(sdk_clients.BlockingCredential(credential, timeout_s, loop))


def _not_supported(role: str, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"enable_syphon cannot use the client of the {role}: {reason}. Set syphon_options to a "
        "pairbus.syphon.SyphonOptions, or run a syphon in another process."
    )
