"""Described AMQP types that the .NET SDK writes for values that AMQP has no type for."""

from typing import Final

TIME_SPAN: Final = "com.microsoft:timespan"
DATE_TIME_OFFSET: Final = "com.microsoft:datetime-offset"
URI: Final = "com.microsoft:uri"
