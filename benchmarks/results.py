"""Figures on disk: for each subject what was measured last, when, where and how.

Subjects are run one by one or together. What one brings replaces its own figures and leaves those
of the others, so each carries its own date, commit and surroundings.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness import Figure

FORMAT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The figures of one subject, and how they came about."""

    about: str
    """What is measured, and how."""
    when: str
    """When it began, in UTC."""
    seconds: float
    """How long it took."""
    load: float
    """The load of the machine in the minute before."""
    after: str | None = None
    """The subject that ran just before, of which that load is."""
    rounds: int
    settings: dict[str, str] = field(default_factory=dict)
    """Variables of the environment that made it another measurement than the usual one."""
    surroundings: dict[str, Any]
    figures: list[Figure]

    @property
    def loaded(self) -> bool | None:
        """Whether something else kept a quarter of the machine or more busy when it began. None:
        not known, because another subject had just ended."""
        return None if self.after else self.load > self.surroundings["cores"] / 4

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        known = {name: getattr(self, name) for name in self.__slots__}
        figures = [figure.plain() for figure in self.figures]
        return {**known, "loaded": self.loaded, "figures": figures}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "Taken":
        known = {name: plain[name] for name in cls.__slots__}
        known["figures"] = [Figure.from_plain(figure) for figure in plain["figures"]]
        return cls(**known)


def settings_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Those by which a subject is asked for less than all."""
    return {name: environment[name] for name in sorted(environment) if name.startswith("BENCH_")}


def read(path: Path) -> dict[str, Taken]:
    """What each subject brought last. Nothing where there is no file, or one of the time before
    subjects were kept apart."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    if document.get("format") != FORMAT:
        return {}
    return {name: Taken.from_plain(plain) for name, plain in document["subjects"].items()}


def keep(path: Path, subject: str, taken: Taken) -> None:
    """Put what a subject brought in the place of what it brought before. The file is replaced as a
    whole, so that a run that is ended by hand spoils nothing."""
    subjects = {**read(path), subject: taken}
    document = {
        "format": FORMAT,
        "subjects": {name: subjects[name].plain() for name in sorted(subjects)},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    new.replace(path)
