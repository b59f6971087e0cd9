"""The file that keeps the plan of a redrive until it is finished.

A redrive that was interrupted continues with the same messages, and does not take those that were
dead-lettered since. The file is written once: what was moved is not in the dead-letter queue any
more. It contains sequence numbers and paths, and neither secrets nor messages.
"""

import hashlib
import json
import os
from pathlib import Path

from pairbus.backlog.dead_letter_filter import DeadLetterFilter
from pairbus.backlog.dead_letter_source import DeadLetterSource
from pairbus.backlog.redrive_plan import RedrivePlan, plan_from_json
from pairbus.errors import ConfigurationError
from pairbus.servicebus.addresses import canonical_address, format_address


class RedriveJournal:
    """The file of one redrive, given by what it takes and where it sends it."""

    def __init__(
        self,
        folder: Path,
        source: DeadLetterSource,
        choice: DeadLetterFilter,
        times: tuple[str | None, str | None] = (None, None),
    ) -> None:
        """`times` are the start and the end of the time range as the user wrote them: an age is
        another time whenever the command runs."""
        options = source.namespace
        address = canonical_address(options.host, options.port, options.endpoint_host)
        key = [
            format_address(*address),
            list(source.entities),
            source.to,
            list(choice.reasons),
            list(choice.destinations),
            list(times),
            choice.count,
        ]
        digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()
        self.path = folder / f"{digest[:16]}.json"

    def load(self) -> RedrivePlan | None:
        """Return the plan of a redrive that was interrupted, or None. Raises ConfigurationError if
        the file cannot be read."""
        try:
            return plan_from_json(json.loads(self.path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, ConfigurationError) as exc:
            raise ConfigurationError(
                f"The plan of the interrupted redrive cannot be read: {exc} Start a new one with "
                f"--restart, or remove {self.path}."
            ) from exc

    def save(self, plan: RedrivePlan) -> None:
        """Write the plan. The file is complete or does not exist, also after a crash. Raises
        ConfigurationError if it cannot be written."""
        part = self.path.with_suffix(f".{os.getpid()}.part")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with part.open("w", encoding="utf-8") as file:
                json.dump(plan.to_json(), file)
                file.flush()
                os.fsync(file.fileno())
            part.replace(self.path)
        except OSError as exc:
            raise ConfigurationError(f"The plan of the redrive cannot be saved: {exc}") from exc

    def remove(self) -> None:
        """Remove the file of a redrive that is finished. Idempotent."""
        self.path.unlink(missing_ok=True)
