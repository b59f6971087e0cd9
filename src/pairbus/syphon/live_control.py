"""The pauses and rate limits of a running syphon: its options, and what an operator has changed."""

from collections.abc import Mapping

from pairbus.backlog.syphon_control import Control, ControlFile
from pairbus.syphon.options import SyphonOptions


class LiveControl:
    """The settings that apply now."""

    def __init__(self, options: SyphonOptions, file: ControlFile | None) -> None:
        self._options = options
        self._file = file
        self._control = Control()

    def refresh(self) -> bool:
        """Read the control file, and return True if it has changed."""
        before = self._control
        if self._file is not None:
            self._control = self._file.read_or_keep()
        return self._control != before

    @property
    def paused(self) -> bool:
        """True if no messages are to be moved."""
        return self._control.paused

    @property
    def paused_destinations(self) -> frozenset[str]:
        """The destinations that are to get no messages."""
        return frozenset(self._control.paused_destinations)

    @property
    def max_rate(self) -> float | None:
        """The messages a second of all destinations. None: no limit."""
        rate = self._control.max_rate
        return self._options.max_rate if rate is None else rate

    @property
    def max_rates(self) -> Mapping[str, float]:
        """The messages a second of single destinations."""
        return {**self._options.max_rates, **self._control.max_rates}
