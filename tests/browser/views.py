"""The window widths and color schemes in which the page must look right."""

from itertools import product

WIDTHS = (1400, 900, 390)
SCHEMES = ("light", "dark")
VIEWS = list(product(WIDTHS, SCHEMES))
