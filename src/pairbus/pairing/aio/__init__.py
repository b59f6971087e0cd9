"""Paired clients and senders for `azure.servicebus.aio`."""
