"""Garbage collection in processes that handle many messages at a time.

Python looks for reference cycles after each 700 new objects, among these and from time to time
among all objects of the process. Batches of messages consist of thousands of objects, which form no
cycles and are freed without a search.
"""

import gc

NEW_OBJECTS = 50_000
"""The number of new objects after which the first search takes place."""


def collect_rarely() -> None:
    """Search for reference cycles rarely, and never among the objects that exist now. It does
    nothing if it was called before, or if the application has switched the search off."""
    new_objects, *others = gc.get_threshold()
    if gc.isenabled() and 0 < new_objects < NEW_OBJECTS:
        gc.freeze()
        gc.set_threshold(NEW_OBJECTS, *others)
