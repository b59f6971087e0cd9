"""Memory and CPU time of a process and its descendants, by kind of process."""

import os
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

INTERVAL_S = 0.1
TICKS = os.sysconf("SC_CLK_TCK")
PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 1024**2
DRIVER, JVM, WORKERS = "driver, Python", "driver, JVM", "workers, Python"


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """A process at one moment."""

    parent: int
    name: str
    cpu_s: float
    resident_mb: float


@dataclass(slots=True)
class Usage:
    """CPU seconds since the start, and the highest memory use, by kind of process."""

    cpu_s: Counter[str] = field(default_factory=Counter)
    peak_mb: dict[str, float] = field(default_factory=dict)


def processes() -> dict[int, ProcessSample]:
    """Return all processes of this machine."""
    samples = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            before, _, after = (folder / "stat").read_text().rpartition(")")
        except OSError:  # the process has ended
            continue
        # The fields of proc(5) from number 3 on: 4 is the parent, 14 and 15 are the CPU times.
        fields = after.split()
        ticks = int(fields[11]) + int(fields[12])
        samples[int(folder.name)] = ProcessSample(
            parent=int(fields[1]),
            name=before.partition("(")[2],
            cpu_s=ticks / TICKS,
            resident_mb=int(fields[21]) * PAGE_MB,
        )
    return samples


def descendants(root: int, samples: dict[int, ProcessSample]) -> list[int]:
    """Return the ids of a process and of all its descendants."""
    tree = [root] if root in samples else []
    for pid in tree:
        tree += [child for child, sample in samples.items() if sample.parent == pid]
    return tree


def kind_of(sample: ProcessSample) -> str:
    """Return the kind of a process of a syphon. The Python processes in which Spark plans and
    commits belong to the driver."""
    if sample.name == "java":
        return JVM
    return WORKERS if sample.name == "pyspark.worker" else DRIVER


class Watch:
    """Samples a process and its descendants, in a thread, within a `with` block."""

    def __init__(self, root: int, kind: str | None = None) -> None:
        """`kind` is the kind of all processes. If it is None, `kind_of` determines the kinds."""
        self._root = root
        self._kind = kind
        self._first: dict[int, float] = {}
        self._last: dict[int, tuple[str, float]] = {}
        self._peak: dict[str, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Watch":
        self._sample()
        self._first = {pid: cpu_s for pid, (_, cpu_s) in self._last.items()}
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._sample()

    def usage(self) -> Usage:
        """Return the resources used within the block."""
        cpu_s: Counter[str] = Counter()
        for pid, (kind, until) in self._last.items():
            cpu_s[kind] += until - self._first.get(pid, 0.0)
        return Usage(cpu_s, dict(self._peak))

    def _run(self) -> None:
        while not self._ended.wait(INTERVAL_S):
            self._sample()

    def _sample(self) -> None:
        samples = processes()
        resident: Counter[str] = Counter()
        for pid in descendants(self._root, samples):
            sample = samples[pid]
            kind = self._kind or kind_of(sample)
            self._last[pid] = kind, sample.cpu_s
            resident[kind] += sample.resident_mb
        for kind, megabytes in resident.items():
            self._peak[kind] = max(megabytes, self._peak.get(kind, 0.0))
