"""Namespaces for tests, which are started in milliseconds because their data is in memory."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pairbus.emulator.config import NamespaceConfig
from pairbus.emulator.namespace import LocalNamespace
from pairbus.servicebus.entity_paths import check_name

SHARED_MEMORY = Path("/dev/shm")
MIN_FREE_BYTES = 32 * 1024 * 1024
"""With less free memory there, data is kept in the folder for temporary files."""


class NamespaceFactory:
    """Starts namespaces, and closes those that are still open when it is closed."""

    def __init__(self, new_folder: Callable[[str], Path] | None = None) -> None:
        """`new_folder` creates the folder of a namespace, given its name. Without it, data is kept
        in memory."""
        self._new_folder = new_folder
        self._base: Path | None = None
        self._open: list[LocalNamespace] = []

    def __enter__(self) -> "NamespaceFactory":
        return self

    def __exit__(self, *exc: object) -> None:
        for namespace in tuple(self._open):
            self.close(namespace)
        if self._base is not None:
            shutil.rmtree(self._base, ignore_errors=True)
            self._base = None

    def __call__(
        self,
        name: str = "local",
        *,
        queues: Iterable[str] = (),
        folder: Path | None = None,
        **options: Any,
    ) -> LocalNamespace:
        """Start a namespace with these queues. `options` are those of LocalNamespace."""
        namespace = self.start(NamespaceConfig(name=name), folder, options)
        namespace.ensure(NamespaceConfig(name=name), queues)
        return namespace

    def start(
        self, config: NamespaceConfig, folder: Path | None, options: Mapping[str, Any]
    ) -> LocalNamespace:
        """Start a namespace with the entities of a configuration."""
        check_name("namespace", config.name)
        if folder is None:
            folder = self._new_folder(config.name) if self._new_folder else self._memory_folder()
        namespace = LocalNamespace(config.name, folder=folder, **options)
        self._open.append(namespace)
        try:
            namespace.start()
            namespace.ensure(config)
        except BaseException:
            self.close(namespace)
            raise
        return namespace

    def close(self, namespace: LocalNamespace) -> None:
        """Close a namespace, and free the memory of its data."""
        namespace.close()
        self._open.remove(namespace)
        if namespace.folder.parent == self._base:
            shutil.rmtree(namespace.folder, ignore_errors=True)

    def _memory_folder(self) -> Path:
        if self._base is None:
            parent = SHARED_MEMORY if _has_space(SHARED_MEMORY) else None
            self._base = Path(tempfile.mkdtemp(prefix="pairbus-", dir=parent))
        return Path(tempfile.mkdtemp(dir=self._base))


def _has_space(folder: Path) -> bool:
    if not os.access(folder, os.W_OK):
        return False
    return shutil.disk_usage(folder).free >= MIN_FREE_BYTES
