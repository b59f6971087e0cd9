"""Subscription rules: SQL filters, correlation filters and SQL actions."""
