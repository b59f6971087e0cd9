"""Queues, topics, subscriptions and what happens to their messages."""
