"""What processes take, by what they are: memory and CPU time of a process and all below it."""

import os
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

LOOK_S = 0.1
TICKS = os.sysconf("SC_CLK_TCK")
PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 1024**2
DRIVER, JVM, WORKERS = "driver, Python", "driver, JVM", "workers, Python"


@dataclass(frozen=True, slots=True)
class Seen:
    """A process at one moment."""

    parent: int
    name: str
    cpu_s: float
    resident_mb: float


@dataclass(slots=True)
class Usage:
    """CPU seconds since the start and the most memory at one moment, by kind of process."""

    cpu_s: Counter[str] = field(default_factory=Counter)
    peak_mb: dict[str, float] = field(default_factory=dict)


def processes() -> dict[int, Seen]:
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            before, _, after = (folder / "stat").read_text().rpartition(")")
        except OSError:  # it has just ended
            continue
        rest = after.split()
        # From the state on, field 3 of proc(5): the parent is next; 14 and 15 are the times.
        times = int(rest[11]) + int(rest[12])
        found[int(folder.name)] = Seen(
            parent=int(rest[1]),
            name=before.partition("(")[2],
            cpu_s=times / TICKS,
            resident_mb=int(rest[21]) * PAGE_MB,
        )
    return found


def below(root: int, seen: dict[int, Seen]) -> list[int]:
    """The process and all that it started, directly or not."""
    tree = [root] if root in seen else []
    for pid in tree:
        tree += [child for child, one in seen.items() if one.parent == pid]
    return tree


def kind_of(pid: int, seen: Seen) -> str:
    """What a process of a syphon is. Besides the program Spark has several in Python that plan and
    commit: they belong to the driver."""
    if seen.name == "java":
        return JVM
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        words = b""
    return WORKERS if b"pyspark.worker" in words else DRIVER


class Watch:
    """Looks at a tree of processes again and again, in a thread, until it is left."""

    def __init__(self, root: int, one_kind: str | None = None) -> None:
        self._root = root
        self._one_kind = one_kind
        self._first: dict[int, float] = {}
        self._last: dict[int, tuple[str, float]] = {}
        self._peak: dict[str, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Watch":
        self._look()
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
        self._look()

    def usage(self) -> Usage:
        cpu_s: Counter[str] = Counter()
        for pid, (kind, until) in self._last.items():
            cpu_s[kind] += until - self._first.get(pid, 0.0)
        return Usage(cpu_s, dict(self._peak))

    def _run(self) -> None:
        while not self._ended.wait(LOOK_S):
            self._look()

    def _look(self) -> None:
        seen = processes()
        resident: Counter[str] = Counter()
        for pid in below(self._root, seen):
            one = seen[pid]
            kind = self._one_kind or kind_of(pid, one)
            self._last[pid] = kind, one.cpu_s
            resident[kind] += one.resident_mb
        for kind, megabytes in resident.items():
            self._peak[kind] = max(megabytes, self._peak.get(kind, 0.0))
