"""Amounts of money as text."""

from decimal import Decimal

_SMALLEST = 0.000001


def format_money(amount: Decimal | float) -> str:
    """Return an amount with two decimals, or more if it is less than one."""
    size = abs(float(amount))
    if size == 0 or size >= 1:
        return f"{amount:,.2f}"
    if size < _SMALLEST:
        return f"< {_SMALLEST:f}"
    return f"{amount:.4f}" if size >= 0.001 else f"{amount:.6f}"


def exact_money(amount: Decimal) -> str:
    """Return an amount with all its digits, and at least two decimals: 0.0144, 10.00."""
    units, _, decimals = f"{amount:f}".partition(".")
    return f"{units}.{decimals.rstrip('0').ljust(2, '0')}"
