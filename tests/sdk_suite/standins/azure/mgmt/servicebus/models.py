"""Stand-in for the models of Azure Resource Manager that the tests name."""

from enum import StrEnum


class AccessRights(StrEnum):
    manage = "Manage"
    send = "Send"
    listen = "Listen"
