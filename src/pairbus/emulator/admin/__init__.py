"""The administration API of a namespace: Atom documents over HTTP."""
