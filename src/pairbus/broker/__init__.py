"""Local namespaces: a durable Service Bus broker in one process."""
