"""Metrics and traces through the API of OpenTelemetry, which is optional.

The page Metrics and traces of the documentation describes them.
"""
