"""Billable operations as they happen, and the append-only ledger files that hold them."""
