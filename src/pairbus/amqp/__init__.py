"""AMQP 1.0 without I/O, for both roles, and a client on a blocking socket
(`pairbus.amqp.client`)."""
