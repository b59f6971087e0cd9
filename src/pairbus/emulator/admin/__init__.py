"""The administration API: Atom over HTTP."""
