"""Subscription rules: SQL and correlation filters, SQL actions."""
