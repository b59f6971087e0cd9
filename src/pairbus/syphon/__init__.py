"""The syphon: moves the backlog to where it was going, on Spark; and a Service Bus connector."""
