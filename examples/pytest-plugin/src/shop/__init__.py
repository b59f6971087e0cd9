"""A shop that takes orders from Azure Service Bus."""
