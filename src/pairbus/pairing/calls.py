"""One call of a paired sender."""

from typing import NamedTuple

from pairbus.pairing.links import SenderLinks
from pairbus.pairing.state import PairingState, PathState


class SenderCall(NamedTuple):
    """One call of a paired sender: the state that it depends on, and its deadline."""

    pairing: PairingState
    path: PathState
    links: SenderLinks
    deadline: float

    @property
    def left_s(self) -> float:
        """The time that is left for the call."""
        return max(0.0, self.deadline - self.pairing.now())
