"""The temporary folder of this process, for files that Spark needs as long as it runs."""

import atexit
import contextlib
import os
import threading
from pathlib import Path

from pyspark import SparkContext

from pairbus.spark.owned_folders import OwnedFolder, remove_abandoned_folders

EXIT_S = 5.0
"""The longest wait for the JVM when the process exits."""

_lock = threading.Lock()
_folder: OwnedFolder | None = None
_process = 0


def process_folder() -> Path:
    """Return the folder. It is created at the first call, which also removes the folders of
    processes that were killed, and deleted when the process exits."""
    global _folder, _process  # a process has one JVM
    with _lock:
        if _folder is None or _process != os.getpid():
            remove_abandoned_folders()
            _folder, _process = OwnedFolder("spark"), os.getpid()
            atexit.register(_remove, _folder, _process)
        return _folder.path


def _remove(folder: OwnedFolder, process: int) -> None:
    if os.getpid() != process:  # a fork
        return
    # The JVM exits when its standard input is closed, and removes its files before that.
    jvm = getattr(SparkContext._gateway, "proc", None)
    with contextlib.suppress(Exception):
        if jvm is not None:
            jvm.stdin.close()
            jvm.wait(EXIT_S)
    folder.remove()
