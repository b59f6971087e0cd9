"""The process that the Python processes of an embedded Spark are forked from."""

from pairbus.spark.fork_server import fits, module_path

SETTINGS = {"PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "YES"}


def test_environment_with_the_same_settings_of_python_fits() -> None:
    spark = {
        "PYTHONPATH": "/spark/python",
        "PYTHON_WORKER_FACTORY_PORT": "4711",
        "PYTHON_UNIX_DOMAIN_ENABLED": "True",
        "SPARK_LOCAL_DIRS": "/tmp",
    }
    assert fits({**SETTINGS, **spark}, SETTINGS)


def test_environment_with_other_settings_of_python_does_not_fit() -> None:
    assert not fits({**SETTINGS, "PYTHONHASHSEED": "1"}, SETTINGS)
    assert not fits({**SETTINGS, "PYTHONOPTIMIZE": "1"}, SETTINGS)
    assert not fits({"PYTHONHASHSEED": "0"}, SETTINGS)


def test_path_begins_with_the_folder_and_the_python_path() -> None:
    own = ["/start", "/lib", "/added", "/site"]

    path = module_path("/work", "/spark.zip:/added:", own)

    assert path == ["/work", "/spark.zip", "/added", "/lib", "/site"]
