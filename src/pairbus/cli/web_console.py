"""`pairbus console`: a web page with the state of a pairing, and actions on it."""

import json
import logging
import socket
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from pairbus.cli.cancellation import cancel_on_signal
from pairbus.cli.configuration_options import (
    OptionalConfigFile,
    OptionalPairingName,
    selected_section,
)
from pairbus.cli.console import consoles, print_error, print_warning
from pairbus.cli.default_paths import chosen_ledger, console_folder, control_file
from pairbus.cli.durations import parse_duration
from pairbus.cli.network_options import CaFile, NetworkOptions, ProxyUrl, Transport
from pairbus.cli.pairing_options import (
    DEFAULT_BACKLOG_QUEUES,
    AsJson,
    ExpectedQueues,
    PairingSettings,
    PrimaryName,
    SyphonPrimary,
    SyphonSecondary,
    Timeout,
    required,
)
from pairbus.cost.prices import Tier, read_prices
from pairbus.errors import ConfigurationError, PairbusError

if TYPE_CHECKING:
    from pairbus.console.assembly import ConsoleOptions
    from pairbus.console.tokens import TokenSigner

DONE, FAILED, USAGE_ERROR = 0, 1, 2
DEFAULT_PORT = 8710
LINK_LIFETIME = timedelta(minutes=10)
EXAMPLE = "Example: PAIRBUS_PRIMARY=… PAIRBUS_SECONDARY=… pairbus console --status-file status.json"
TOKEN_EXAMPLE = "Example: pairbus console token --role sender --valid 90d"
_ANY = ("0.0.0.0", "::")

app = typer.Typer(invoke_without_command=True, rich_markup_mode="markdown")

Folder = Annotated[
    Path | None,
    typer.Option(
        "--folder",
        help="Folder for the key of tokens, history, sessions and the audit log.",
        show_default="$XDG_STATE_HOME/pairbus/console",
        file_okay=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Address:
    """The address of the console, and its certificate."""

    host: str
    port: int
    certificate: Path | None
    key: Path | None
    emulator_certificate: bool
    names: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        if self.certificate is not None and self.emulator_certificate:
            raise ConfigurationError("Use --tls-cert or --emulator-certificate, not both.")
        if self.certificate is None and self.key is not None:
            raise ConfigurationError("--tls-key needs --tls-cert FILE.")

    @property
    def has_tls(self) -> bool:
        return self.certificate is not None or self.emulator_certificate

    @property
    def allowed_hosts(self) -> tuple[str, ...]:
        """The names by which browsers may address the console, beside those of loopback."""
        if self.host in _ANY:
            return (*self.names, socket.gethostname(), socket.getfqdn())
        return (*self.names, self.host)


@app.callback(epilog=EXAMPLE)
def console(
    context: typer.Context,
    primary: SyphonPrimary = None,
    secondary: SyphonSecondary = None,
    primary_name: PrimaryName = None,
    backlog_queues: ExpectedQueues = DEFAULT_BACKLOG_QUEUES,
    config: OptionalConfigFile = None,
    pairing: OptionalPairingName = None,
    timeout: Timeout = 5,
    transport: Transport = "tcp",
    proxy: ProxyUrl = None,
    ca_file: CaFile = None,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on. One that other machines can reach needs TLS: --tls-cert."
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on. 0: a free one.")
    ] = DEFAULT_PORT,
    tls_cert: Annotated[
        Path | None,
        typer.Option(help="PEM file with the certificate of the console.", dir_okay=False),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(
            help="PEM file with the private key, if it is not in --tls-cert.", dir_okay=False
        ),
    ] = None,
    emulator_certificate: Annotated[
        bool,
        typer.Option(
            "--emulator-certificate",
            help="Create a certificate as the emulator does, to try TLS. Browsers warn about it.",
        ),
    ] = False,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Another name of the console that browsers may use, such as that of a reverse "
            "proxy. Can be repeated.",
        ),
    ] = None,
    status_file: Annotated[
        Path | None,
        typer.Option(help="Path of the --status-file of a syphon on this machine.", dir_okay=False),
    ] = None,
    control_path: Annotated[
        Path | None,
        typer.Option(
            "--control-file",
            help="Control file of the syphon, as in its option --control-file.",
            show_default="$XDG_STATE_HOME/pairbus/control/PRIMARY-NAME.json",
            dir_okay=False,
        ),
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the ledger: its cost is shown, and the console's own operations are "
            "recorded there.",
            show_default="$XDG_STATE_HOME/pairbus/ledger",
            file_okay=False,
        ),
    ] = None,
    no_ledger: Annotated[
        bool, typer.Option("--no-ledger", help="Read and write no ledger.")
    ] = False,
    prices: Annotated[
        Path | None, typer.Option(help="TOML file with prices, instead of the built-in ones.")
    ] = None,
    tier: Annotated[str, typer.Option(help="Tier: basic, standard or premium.")] = "standard",
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Serve a web page for operators: the state of a pairing, its backlog and its cost, and
    actions.

    On this machine, open the printed link: it is valid for 10 minutes and for one login, as
    operator. Other users and senders need a token: `pairbus console token`.

    Reading the namespaces is billed: about one operation in 5 minutes when nothing happens, or in
    a minute while the page is open; in an outage one in 15 seconds, and up to 50 for each backlog
    queue in a minute. Needs the Manage right on the secondary; with the Listen right alone,
    messages are peeked instead.

    Runs until Ctrl-C.

    Exit status: 0 stopped; 1 failed; 2 invalid option.
    """
    if context.invoked_subcommand is not None:
        return
    out, err = consoles()
    try:
        address = _Address(
            host=host,
            port=port,
            certificate=tls_cert,
            key=tls_key,
            emulator_certificate=emulator_certificate,
            names=tuple(allowed_host or ()),
        )
        settings = PairingSettings(
            primary=primary,
            secondary=required("secondary", secondary),
            primary_name=primary_name,
            backlog_queues=backlog_queues,
            network=NetworkOptions(transport, proxy, ca_file),
        )
        from pairbus.console.assembly import ConsoleOptions
        from pairbus.console.key_file import load_signer

        target = settings.target(timeout, needs_primary=primary is not None)
        base = folder or console_folder()
        section = selected_section(context)
        name = target.known_primary_name()
        options = ConsoleOptions(
            target=target,
            signer=load_signer(base / "key"),
            port=port,
            audit_file=base / "audit.jsonl",
            database_file=base / f"{control_file(name).stem}.sqlite3",
            control_file=control_path or control_file(name),
            status_file=status_file,
            ledger=chosen_ledger(ledger, no_ledger=no_ledger),
            pairing=None if section is None else section.name,
            prices=read_prices(prices),
            tier=Tier.named(tier),
            secure=address.has_tls,
            hosts=address.allowed_hosts,
        )
        _serve(out, err, address, options, base, as_json=as_json)
    except PairbusError as exc:
        print_error(err, exc)
        raise typer.Exit(USAGE_ERROR if isinstance(exc, ConfigurationError) else FAILED) from exc


@app.command(epilog=TOKEN_EXAMPLE)
def token(
    role: Annotated[
        str,
        typer.Option(
            metavar="[sender|viewer|operator]",
            help="sender: report only. viewer: read only. operator: read and act.",
        ),
    ],
    valid: Annotated[
        str, typer.Option(metavar="DURATION", help="Time until the token expires, such as 12h.")
    ] = "30d",
    folder: Folder = None,
) -> None:
    """Print a token for the console. Keep it secret, and pass it on over a secure channel.

    It is signed with the key in the folder of the console. To make all tokens invalid, delete the
    file `key` there and restart the console.

    Exit status: 0 done; 2 invalid option.
    """
    err = consoles()[1]
    try:
        from pairbus.console.key_file import load_signer
        from pairbus.console.roles import ConsoleRole

        if role not in list(ConsoleRole):
            raise ConfigurationError(
                f"--role: {role!r} is not valid. Use {', '.join(ConsoleRole)}."
            )
        signer = load_signer((folder or console_folder()) / "key")
        typer.echo(signer.issue(ConsoleRole(role), parse_duration("valid", valid), time.time()))
    except PairbusError as exc:
        print_error(err, exc)
        raise typer.Exit(USAGE_ERROR) from exc


def _serve(
    out: Console,
    err: Console,
    address: _Address,
    options: "ConsoleOptions",
    folder: Path,
    *,
    as_json: bool,
) -> None:
    from dataclasses import replace

    from pairbus.console.assembly import create_console
    from pairbus.console.running import RunningConsole
    from pairbus.console.server import check_exposure
    from pairbus.listeners import is_loopback_host, open_listener, tls_context

    check_exposure(address.host, has_tls=address.has_tls)
    certificate, key, ca_file = address.certificate, address.key, None
    if address.emulator_certificate:
        from pairbus.emulator.connections.certificates import ensure_certificates

        names = [name for name in address.allowed_hosts if name not in _ANY]
        files = ensure_certificates(folder / "certificates", names, now=datetime.now(UTC))
        certificate, key, ca_file = files.server_file, None, files.ca_file
    tls = None
    if certificate is not None:
        tls = tls_context(str(certificate), None if key is None else str(key))
    listener = open_listener(address.host, address.port)
    port: int = listener.getsockname()[1]
    application = create_console(replace(options, port=port))
    _log_to(err)
    with (
        cancel_on_signal() as cancel,
        RunningConsole(application, listener, tls, on_end=cancel.set) as running,
    ):
        scheme = "http" if tls is None else "https"
        shown = address.allowed_hosts[0] if address.host in _ANY else address.host
        url = f"{scheme}://{f'[{shown}]' if ':' in shown else shown}:{running.port}/"
        link = login_link(options.signer, url) if is_loopback_host(address.host) else None
        if as_json:
            ca_path = None if ca_file is None else str(ca_file)
            typer.echo(json.dumps({"url": url, "login_url": link, "ca_file": ca_path}))
        else:
            _print_address(out, url, link, ca_file)
        cancel.wait()


def login_link(signer: "TokenSigner", url: str) -> str:
    """Return a link with a token for one login. It is in the fragment, which browsers do not
    send."""
    from pairbus.console.roles import ConsoleRole

    token = signer.issue(ConsoleRole.OPERATOR, LINK_LIFETIME, time.time(), once=True)
    return f"{url}#token={token}"


def _print_address(out: Console, url: str, link: str | None, ca_file: Path | None) -> None:
    out.print(f"The console is at {url}", markup=False)
    if link is not None:
        out.print("Log in as operator with this link, once and within 10 minutes:", markup=False)
        out.print(f"  {link}", markup=False)
    if ca_file is not None:
        out.print(f"CA file of its certificate: {ca_file}", markup=False)
    out.print("Tokens for other users and for senders: pairbus console token", markup=False)
    out.print("Stop with Ctrl-C.", markup=False)


def _log_to(err: Console) -> None:
    """Print warnings of the console and errors of its server, a line each. The server also warns
    about every malformed request: clients could fill the log with those."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = record.getMessage().strip()
            if record.exc_info and record.exc_info[1] is not None:
                text += f" ({type(record.exc_info[1]).__name__}: {record.exc_info[1]})"
            print_warning(err, text)

    handler = Handler()
    for name, level in (("uvicorn", logging.ERROR), ("pairbus", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(level)
        logger.propagate = False
