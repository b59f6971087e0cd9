"""Paired clients and senders: failover of sends to a backlog in a second namespace."""
