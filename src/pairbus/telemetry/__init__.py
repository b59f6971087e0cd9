"""Metrics and traces through the API of OpenTelemetry, which is optional.

docs/reference/telemetry.md describes them.
"""
