"""Data sources that bring this package along, for Spark on other machines.

Spark runs parts of a data source in Python processes beside its driver (it creates the source,
plans micro-batches and commits them there), and other parts in tasks. These processes use the
interpreter of the workers, which may not have this package. Files that were added to the session do
not help: the process that plans does not see them, nor do the tasks of a stream on Spark Connect.
So the class that is registered refers to no module of this package. It contains the package, and
makes it importable where it is unpickled. So do the readers and writers that it creates.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource

SourceFactory: TypeAlias = Callable[[dict[str, str]], DataSource]
"""Creates the real data source from the options of a query."""


def portable_source(
    source_name: str, source_schema: str, factory: SourceFactory, archive: bytes | None
) -> type[DataSource]:
    """Return a data source that Spark can send to any process.

    `archive` is a zip file with this package. None: all processes have it. The factory is pickled
    here, so that what it holds is in no option, plan or log.
    """
    payload: bytes = cloudpickle.dumps(factory)  # type: ignore[no-untyped-call]

    # Everything below is pickled by value, so it may only import Spark and the standard library.
    def load(data: bytes) -> Any:
        import hashlib
        import os
        import pickle
        import sys
        import tempfile
        from pathlib import Path

        if archive is not None and "pairbus" not in sys.modules:
            # Spark's own folder, which it removes when it ends.
            folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir()
            path = Path(folder, f"pairbus-{hashlib.sha256(archive).hexdigest()[:12]}.zip")
            if not path.exists():
                draft = path.with_name(f"{path.name}.{os.getpid()}")
                draft.write_bytes(archive)
                draft.replace(path)
            sys.path.insert(1, str(path))
        return pickle.loads(data)

    def restore(data: bytes) -> Any:
        create, arguments, state = load(data)[:3]
        part = create(*arguments)
        part.__dict__.update(state)
        return part

    def portable(part: Any) -> Any:
        """Return a reader or writer that can be unpickled where this package is missing."""
        if archive is not None:
            import copyreg

            from pyspark import cloudpickle

            def reduce(part: Any) -> Any:
                data = cloudpickle.dumps(part.__reduce_ex__(4))  # type: ignore[no-untyped-call]
                return restore, (data,)

            copyreg.pickle(type(part), reduce)
        return part

    class PortableSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return source_name

        def schema(self) -> str:
            return source_schema

        def reader(self, schema: Any) -> Any:
            return portable(load(payload)(self.options).reader(schema))

        def writer(self, schema: Any, overwrite: bool) -> Any:
            return portable(load(payload)(self.options).writer(schema, overwrite))

        def streamReader(self, schema: Any) -> Any:  # noqa: N802
            return portable(load(payload)(self.options).streamReader(schema))

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
            return portable(load(payload)(self.options).streamWriter(schema, overwrite))

    return PortableSource
