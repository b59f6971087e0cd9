"""Paired namespaces on the Azure SDK: a sender that goes on when the primary does not."""
