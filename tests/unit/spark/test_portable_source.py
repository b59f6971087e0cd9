"""A data source works in processes that do not have this package."""

import subprocess
from pathlib import Path

import pytest
from pyspark import cloudpickle

from pairbus.spark.connector import FORMAT, ServiceBus
from pairbus.spark.package_archive import archive_content, write_archive
from pairbus.spark.portable_source import portable_source
from pairbus.spark.rows import SCHEMA
from tests.cluster.servers import HOME, worker_environment

IN_THE_DRIVER = """
import sys
from pathlib import Path
from pyspark import cloudpickle
from pyspark.sql.types import StructType

folder = Path(sys.argv[1])
source_class = cloudpickle.loads((folder / "class").read_bytes())
assert "pairbus" not in sys.modules
options = {
    "connectionString": "Endpoint=sb://a.example/;SharedAccessKeyName=k;SharedAccessKey=a2V5",
    "queue": "orders",
}
source = source_class(options)
schema = StructType().add("destination", "string").add("payload", "binary")
source = cloudpickle.loads(cloudpickle.dumps(source))
assert (source_class.name(), "pairbus" in sys.modules) == ("servicebus", False)
for name, part in (
    ("stream reader", source.streamReader(schema)),
    ("stream writer", source.streamWriter(schema, False)),
    ("reader", source.reader(schema)),
    ("writer", source.writer(schema, False)),
):
    (folder / name).write_bytes(cloudpickle.dumps(part))
import pairbus.backlog.redrive_on_spark, pairbus.syphon.backlog_source, pairbus.syphon.planner
"""
IN_A_TASK = """
import sys
from pathlib import Path
from pyspark import cloudpickle

part = cloudpickle.loads(Path(sys.argv[1]).read_bytes())
print(type(part).__module__, sys.modules["pairbus"].__file__)
"""


@pytest.mark.rule("Y1")
def test_source_and_its_parts_bring_the_package_along(tmp_path: Path) -> None:
    python = worker_environment(tmp_path / "environment")
    libraries = sorted(str(path) for path in (HOME / "python" / "lib").glob("*.zip"))
    variables = {"PYTHONPATH": ":".join(libraries), "SPARK_LOCAL_DIRS": str(tmp_path)}
    source = portable_source(FORMAT, SCHEMA, ServiceBus, archive_content())
    (tmp_path / "class").write_bytes(cloudpickle.dumps(source))

    subprocess.run([python, "-c", IN_THE_DRIVER, tmp_path], env=variables, check=True)
    (archive,) = tmp_path.glob("pairbus-*.zip")
    for name in ("stream reader", "stream writer", "reader", "writer"):
        command = [python, "-c", IN_A_TASK, tmp_path / name]
        output = subprocess.check_output(command, env=variables, text=True)
        module, file = output.split()
        assert module.startswith("pairbus.spark.")
        assert file.startswith(str(archive))


def test_archive_is_reproducible_and_named_after_its_content(tmp_path: Path) -> None:
    archive_content.cache_clear()
    first = archive_content()
    archive_content.cache_clear()

    assert archive_content() == first
    assert write_archive(tmp_path) == write_archive(tmp_path)
