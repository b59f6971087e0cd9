"""The extras of pairbus: optional packages, and the hint for one that is not installed."""

EXTRAS = {
    "anyio": "console",
    "starlette": "console",
    "uvicorn": "console",
    "rich": "cli",
    "typer": "cli",
    "cryptography": "emulator",
    "h11": "emulator",
    "jwt": "emulator",
    "lark": "emulator",
    "trustme": "emulator",
    "websockets": "emulator",
    "grpc": "connect",
    "jinja2": "report",
    "matplotlib": "report",
    "opentelemetry": "telemetry",
    "pandas": "spark",
    "pyarrow": "spark",
    "pyspark": "spark",
    "websocket": "websocket",
}
"""Modules of optional packages, and the extra of pairbus that installs them. The emulator needs
websockets too; for clients, the extra `websocket` installs it."""


WITH_SPARK = {"drill", "report", "spark"}
"""Extras that install Spark, which needs Java."""


def install_hint(error: ModuleNotFoundError, extras: str = "") -> str | None:
    """Return the command that installs a missing package, or None for a module of pairbus. `extras`
    are those with everything that the user needs, separated by commas. Some of the packages may be
    missing later if the first one is of the extra `cli`, so that all of them are named then."""
    module = (error.name or "").partition(".")[0]
    if module == "pairbus":
        return None
    extra = EXTRAS.get(module, "all")
    names = extras.split(",")
    if extras and (extra == "cli" or "drill" in names):
        extra = extras
    needs_java = EXTRAS.get(module) == "spark" or (extra == extras and WITH_SPARK & set(names))
    java = ", and install Java 17 or 21" if needs_java else ""
    return f"the package {module}. Run: pip install 'pairbus[{extra}]'{java}"


def missing_package(error: ModuleNotFoundError, user: str) -> ModuleNotFoundError:
    """Return the error to raise instead, which says what needs the package."""
    hint = install_hint(error)
    if hint is None:
        return error
    return ModuleNotFoundError(f"{user} needs {hint}", name=error.name, path=error.path)
