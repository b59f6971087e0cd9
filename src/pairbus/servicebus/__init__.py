"""The vocabulary of Service Bus: names, paths, conditions, limits and time spans."""
