"""Puts the parts of the console together from its options."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pairbus.backlog.syphon_control import ControlFile
from pairbus.backlog.target import InspectionTarget
from pairbus.console.actions import ConsoleActions
from pairbus.console.app import ConsoleApplication, ConsoleParts
from pairbus.console.audit import AuditLog
from pairbus.console.collector import Collector
from pairbus.console.guard import Guard
from pairbus.console.history import History
from pairbus.console.ledger_cost import LedgerTail, OutagePrice
from pairbus.console.login import LoginRoutes
from pairbus.console.namespace_inspector import NamespaceInspector
from pairbus.console.redrives import RedriveJobs
from pairbus.console.senders import SenderRegistry
from pairbus.console.sessions import SessionStore
from pairbus.console.state import ConsoleState
from pairbus.console.storage import ConsoleDatabase
from pairbus.console.syphon_files import SyphonFiles
from pairbus.console.tokens import TokenSigner
from pairbus.cost.prices import Prices, Tier, read_prices
from pairbus.spark.usage import UsageRecorder


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleOptions:
    """The options of a console."""

    target: InspectionTarget
    signer: TokenSigner
    port: int
    """The port of its address. It is part of the name of the cookie: browsers send a cookie to
    every port of a host."""
    audit_file: Path
    control_file: Path
    database_file: Path | None = None
    """None: history and sessions are kept in memory."""
    status_file: Path | None = None
    ledger: Path | None = None
    usage_ledger: Path | None = None
    """The folder in which the console's own operations are recorded. None: `ledger`."""
    pairing: str | None = None
    """The name of the pairing in the configuration file."""
    prices: Prices | None = None
    tier: Tier = Tier.STANDARD
    max_inspection_interval_s: float = math.inf
    """The longest time between two inspections of the namespaces, which are usually rare because
    they are billed."""
    secure: bool = False
    """The console uses TLS."""
    hosts: tuple[str, ...] = ()
    """The names of the console beside those of loopback."""


def create_console(
    options: ConsoleOptions, *, now: Callable[[], float] = time.time
) -> ConsoleApplication:
    """Return the application. Raises ConfigurationError."""
    target = options.target
    name = target.known_primary_name()
    primary = target.secondary if target.primary is None else target.primary
    folder = options.usage_ledger or options.ledger
    usage = UsageRecorder.create(
        None if folder is None else str(folder.absolute()), primary, target.secondary
    )
    usage.flush()  # opens the ledger here, before several threads use it
    ledger = None
    if options.ledger is not None:
        ledger = LedgerTail(options.ledger, frozenset({usage.primary, usage.secondary}))
    price = OutagePrice(read_prices() if options.prices is None else options.prices, options.tier)
    control = ControlFile(options.control_file)
    names = (name,) if options.pairing is None else (options.pairing, name)
    collector = Collector(
        NamespaceInspector(target, usage),
        SyphonFiles(options.status_file, control, names),
        ledger,
        max_interval_s=options.max_inspection_interval_s,
    )
    redrives = RedriveJobs(usage, on_end=collector.request)
    database = ConsoleDatabase(options.database_file)
    sessions = SessionStore(database, now())
    prefix = "__Host-" if options.secure else ""
    guard = Guard(
        options.signer,
        sessions,
        cookie=f"{prefix}pairbus-{options.port}",
        hosts=options.hosts,
    )
    audit = AuditLog(options.audit_file)
    state = ConsoleState(
        target=target,
        collector=collector,
        senders=SenderRegistry(name),
        redrives=redrives,
        history=History(database, now()),
        database=database,
        price=price,
        ledger=ledger,
        now=now,
    )
    return ConsoleApplication(
        ConsoleParts(
            state=state,
            guard=guard,
            login=LoginRoutes(
                options.signer, sessions, guard, audit, secure=options.secure, now=now
            ),
            actions=ConsoleActions(target, control, redrives, price),
            audit=audit,
            usage=usage,
        )
    )
