"""The outage drill: a deliberate outage, with reconciliation of all messages by their ids."""
