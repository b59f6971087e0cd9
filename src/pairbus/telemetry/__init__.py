"""Metrics and traces through the API of OpenTelemetry, which is optional. docs/telemetry.md."""
