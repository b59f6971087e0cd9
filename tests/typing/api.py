"""The public names as an application uses them: type-checked, never run."""

import pairbus

version: str = pairbus.__version__
