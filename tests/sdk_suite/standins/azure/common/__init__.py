"""Stand-in for names that a test file imports and does not use."""


class AzureHttpError(Exception):
    pass


class AzureConflictHttpError(AzureHttpError):
    pass
