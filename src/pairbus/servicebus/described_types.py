"""Descriptors of the described AMQP types of Service Bus."""

from typing import Final

# Values that AMQP has no type for, as the .NET SDK writes them.
TIME_SPAN: Final = "com.microsoft:timespan"
DATE_TIME_OFFSET: Final = "com.microsoft:datetime-offset"
URI: Final = "com.microsoft:uri"

# Rules in responses of `$management`.
RULE_DESCRIPTION: Final = 0x0000013700000004
EMPTY_RULE_ACTION: Final = 0x0000013700000005
SQL_RULE_ACTION: Final = 0x0000013700000006
SQL_FILTER: Final = 0x0000001370000006
TRUE_FILTER: Final = 0x0000001370000007
FALSE_FILTER: Final = 0x0000001370000008
CORRELATION_FILTER: Final = 0x0000001370000009
