"""This package as a zip file, for processes of Spark that do not have it."""

import hashlib
import io
import zipfile
from functools import cache
from pathlib import Path

import pairbus.errors

NEEDED = (
    "*.py",
    "amqp/**/*.py",
    "backlog/**/*.py",
    "servicebus/**/*.py",
    "spark/**/*.py",
    "syphon/**/*.py",
    "telemetry/**/*.py",
    "usage/**/*.py",
)
"""The files that workers need. The emulator, the command line and others are left out."""
_EPOCH = (1980, 1, 1, 0, 0, 0)


@cache
def archive_content() -> bytes:
    """Return the zip file. It is the same for the same files, whenever it is made."""
    root = Path(pairbus.errors.__file__).parent
    files = sorted({file for pattern in NEEDED for file in root.glob(pattern)})
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            entry = zipfile.ZipInfo(f"pairbus/{file.relative_to(root).as_posix()}", _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, file.read_bytes())
    return buffer.getvalue()


def write_archive(folder: Path) -> Path:
    """Write the zip file to a folder, and return its path. Its name tells versions apart: Spark
    refuses a second file of the same name."""
    content = archive_content()
    path = folder / f"pairbus-{hashlib.sha256(content).hexdigest()[:12]}.zip"
    path.write_bytes(content)
    return path
