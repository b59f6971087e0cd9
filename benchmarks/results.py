"""The file of benchmark results: the last result of each subject.

Subjects can run separately. A new result replaces only the previous one of the same subject, so
each result has its own date, commit and machine.
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
class SubjectResult:
    """The result of one subject: its figures, and how they were measured."""

    about: str
    """A description of the benchmark."""
    when: str
    """The start time in UTC."""
    seconds: float
    """The duration."""
    load: float
    """The load of the machine in the minute before the start."""
    after: str | None = None
    """The subject that ran directly before, and caused that load."""
    rounds: int
    settings: dict[str, str] = field(default_factory=dict)
    """Environment variables that change what is measured."""
    surroundings: dict[str, Any]
    figures: list[Figure]

    @property
    def loaded(self) -> bool | None:
        """True if the load at the start was more than a quarter of the cores. None if the load
        of other programs is unknown, because another subject ran directly before."""
        return None if self.after else self.load > self.surroundings["cores"] / 4

    def to_json(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        values = {name: getattr(self, name) for name in self.__slots__}
        figures = [figure.to_json() for figure in self.figures]
        return {**values, "loaded": self.loaded, "figures": figures}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "SubjectResult":
        values = {name: data[name] for name in cls.__slots__}
        values["figures"] = [Figure.from_json(figure) for figure in data["figures"]]
        return cls(**values)


def bench_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that change what is measured."""
    return {name: environment[name] for name in sorted(environment) if name.startswith("BENCH_")}


def read(path: Path) -> dict[str, SubjectResult]:
    """Return the last result of each subject. The dictionary is empty if the file does not exist or
    has an older format."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    if document.get("format") != FORMAT:
        return {}
    return {name: SubjectResult.from_json(data) for name, data in document["subjects"].items()}


def save(path: Path, subject: str, result: SubjectResult) -> None:
    """Replace the result of a subject. The file is replaced atomically, so that an interrupted run
    cannot damage it."""
    subjects = {**read(path), subject: result}
    document = {
        "format": FORMAT,
        "subjects": {name: subjects[name].to_json() for name in sorted(subjects)},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    new.replace(path)
