"""XML namespaces of the administration API."""

from typing import Final

ATOM: Final = "http://www.w3.org/2005/Atom"
SERVICE: Final = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
COUNTS: Final = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
SCHEMA: Final = "http://www.w3.org/2001/XMLSchema"
INSTANCE: Final = "http://www.w3.org/2001/XMLSchema-instance"
SERIALIZATION: Final = "http://schemas.microsoft.com/2003/10/Serialization/"
