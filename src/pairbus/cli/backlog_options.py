"""Options that the `pairbus backlog` commands share."""

from dataclasses import dataclass, field

from pairbus.cli.configuration_options import ConfigFile, PairingName
from pairbus.cli.network_options import NetworkOptions
from pairbus.cli.pairing_options import (
    DEFAULT_BACKLOG_QUEUES,
    ExpectedQueues,
    OptionalPrimary,
    PairingSettings,
    PrimaryName,
    Secondary,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogOptions:
    """The options that name the backlog of a pairing."""

    secondary: Secondary = field(repr=False)
    primary: OptionalPrimary = field(default=None, repr=False)
    primary_name: PrimaryName = None
    backlog_queues: ExpectedQueues = DEFAULT_BACKLOG_QUEUES
    config: ConfigFile = None
    pairing: PairingName = None

    def settings(self, network: NetworkOptions) -> PairingSettings:
        """Return the settings of the pairing."""
        return PairingSettings(
            primary=self.primary,
            secondary=self.secondary,
            primary_name=self.primary_name,
            backlog_queues=self.backlog_queues,
            network=network,
        )
