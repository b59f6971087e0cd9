"""Looking at the backlog, and at a pairing as a whole, without Spark: nothing is taken or moved."""
