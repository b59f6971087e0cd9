"""AMQP 1.0 without I/O, for clients and servers, and a blocking client (`pairbus.amqp.client`)."""
