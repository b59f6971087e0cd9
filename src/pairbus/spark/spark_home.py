"""A home folder of Spark whose Python processes start fast.

Spark puts an archive of pyspark from its home folder first into the path of its Python processes.
Python compiles the files of an archive anew in each process, which takes a second. At its start a
streaming query needs seven of them, most of them one after the other. In a home folder without the
archive, they import the installed package, which is compiled once.
"""

import contextlib
import hashlib
import os
import site
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyspark

ARCHIVES = "python"
"""The entry of the home folder that holds the archive of pyspark."""


@contextlib.contextmanager
def fast_home() -> Iterator[Path | None]:
    """Let Spark start with such a home folder, if it would start from the installed package."""
    home = _find_home()
    if home is None:
        yield None
        return
    os.environ["SPARK_HOME"] = str(home)
    try:
        yield home
    finally:
        del os.environ["SPARK_HOME"]


def _find_home() -> Path | None:
    package = Path(pyspark.__path__[0])
    if "SPARK_HOME" in os.environ or os.environ.get("PYSPARK_PYTHON") != sys.executable:
        return None
    if str(package.parent) not in (*site.getsitepackages(), site.getusersitepackages()):
        return None  # the processes may not find the package
    try:
        return _create(package)
    except (OSError, RuntimeError):  # there is no place for it, or no home directory
        return None


def _create(package: Path) -> Path:
    """Return the folder, with links to the entries of the package. Its path is always the same,
    because an archive of Java classes is for one path."""
    digest = hashlib.sha256(str(package).encode()).hexdigest()[:8]
    home = _cache_folder() / f"spark-{pyspark.__version__}-{digest}"
    if home.exists():
        return home
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent) as folder:
        new = Path(folder, home.name)
        new.mkdir()
        for entry in package.iterdir():
            if entry.name != ARCHIVES:
                (new / entry.name).symlink_to(entry)
        with contextlib.suppress(FileExistsError):  # another process was faster
            new.rename(home)
    return home


def _cache_folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME")
    return Path(cache or Path.home() / ".cache", "pairbus")
