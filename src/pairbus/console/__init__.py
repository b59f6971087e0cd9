"""The console: a web page for operators, with the state of a pairing, and actions on it.

Decisions are functions and classes without I/O (`snapshot`, `senders`, `schedule`, `access`); they
take the time from the caller. `server` runs them behind HTTP.
"""
