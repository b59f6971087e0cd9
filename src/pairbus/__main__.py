"""`python -m pairbus` is the `pairbus` command."""

from pairbus.cli import main

main()
