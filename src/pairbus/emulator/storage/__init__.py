"""The durable state of a namespace."""
