"""Sockets, protocols and the links of the clients that are connected."""
