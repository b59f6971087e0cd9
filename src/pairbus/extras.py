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


def install_hint(error: ModuleNotFoundError, extra: str | None = None) -> str | None:
    """Return the command that installs a missing package, or None for a module of pairbus. `extra`
    is one that has more than the package."""
    module = (error.name or "").partition(".")[0]
    if module == "pairbus":
        return None
    java = ", and install Java 17 or 21" if EXTRAS.get(module) == "spark" else ""
    extra = extra or EXTRAS.get(module, "all")
    return f"the package {module}. Run: pip install 'pairbus[{extra}]'{java}"


def missing_package(error: ModuleNotFoundError, user: str) -> ModuleNotFoundError:
    """Return the error to raise instead, which says what needs the package."""
    hint = install_hint(error)
    if hint is None:
        return error
    return ModuleNotFoundError(f"{user} needs {hint}", name=error.name, path=error.path)
