"""Spark sessions, the Service Bus connector, and the readers and writers that queries share."""
