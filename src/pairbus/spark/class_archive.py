"""An archive of the Java classes that Spark loads, which halves the CPU time of its start.

The first JVM writes the archive when it exits (class data sharing of Java), and later ones map it.
It is in the home folder of `spark_home`, because it is for one path of Spark, and is named after
the Java that wrote it. Java checks it, and starts without one that does not fit.
"""

import contextlib
import hashlib
import os
import re
import shutil
import time
from pathlib import Path

PREFIX, ARCHIVE, DRAFT = "classes-", ".jsa", ".draft"
MAX_DRAFT_AGE_S = 3600.0
VARIABLES = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
OPTIONS = ("SharedArchiveFile", "ArchiveClassesAtExit", "-Xshare")
QUIET = (
    # Other Javas than OpenJDK may not know these options.
    "-XX:+IgnoreUnrecognizedVMOptions",
    # Otherwise Java prints a warning for each class that it cannot archive.
    "-Xlog:cds=off",
    "-Xlog:cds+dynamic=off",
)


def archive_options(home: Path | None, use: str) -> list[str]:
    """Return the options of Java that use the archive in a home folder of Spark, or that write it
    if there is none. Without a folder, or if the user has set such options, there are none.

    `use` names what Spark is started for: other work needs other classes."""
    if home is None or re.search(r"[\s\"'\\]", str(home)):
        return []  # the options of Java are one text
    if any(option in os.environ.get(variable, "") for variable in VARIABLES for option in OPTIONS):
        return []
    try:
        name = f"{PREFIX}{use}-{_java_identity()}"
        archive = home / f"{name}{ARCHIVE}"
        if not archive.exists():
            _adopt_draft(archive)
        if archive.exists():
            return [f"-XX:SharedArchiveFile={archive}", *QUIET]
        if not os.access(home, os.W_OK):
            return []
        # Several processes may start at once: each writes a file of its own.
        return [f"-XX:ArchiveClassesAtExit={home}/{name}.{os.getpid()}{DRAFT}", *QUIET]
    except OSError:  # there is no Java, which Spark reports
        return []


def _java_identity() -> str:
    """Return a text that changes with the Java that Spark starts."""
    java_home = os.environ.get("JAVA_HOME")
    java = shutil.which(Path(java_home, "bin", "java") if java_home else "java")
    if java is None:
        raise FileNotFoundError("java")
    path = Path(java).resolve()
    library = (path.parent.parent / "lib" / "modules").stat()
    text = f"{path} {library.st_size} {library.st_mtime_ns}"
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _adopt_draft(archive: Path) -> None:
    """Make a file that an earlier JVM has written the archive, and delete those that are no longer
    needed: the archives of other Javas, and files of JVMs that were killed."""
    use = archive.stem.rpartition("-")[0]
    drafts = list(archive.parent.glob(f"{use}-*{DRAFT}"))
    mine = [draft for draft in drafts if draft.name.startswith(archive.stem) and is_whole(draft)]
    for draft in mine[:1]:
        for other in archive.parent.glob(f"{use}-*{ARCHIVE}"):
            _delete(other)
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            draft.rename(archive)
    for draft in drafts:
        with contextlib.suppress(FileNotFoundError):
            if draft in mine[1:] or time.time() - draft.stat().st_mtime > MAX_DRAFT_AGE_S:
                _delete(draft)


def is_whole(draft: Path) -> bool:
    """Return True if Java has written all of a file. It writes the header last."""
    try:
        with draft.open("rb") as file:
            return any(file.read(4))
    except FileNotFoundError:
        return False


def _delete(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
