"""The outage drill: an outage on purpose, and proof that nothing was lost."""
