"""Requests over the `$cbs` and `$management` nodes: operations, statuses and dispositions."""

from typing import Final

PREFIX: Final = "com.microsoft:"
PEEK_MESSAGE: Final = f"{PREFIX}peek-message"
UPDATE_DISPOSITION: Final = f"{PREFIX}update-disposition"
RENEW_LOCK: Final = f"{PREFIX}renew-lock"
RECEIVE_BY_SEQUENCE_NUMBER: Final = f"{PREFIX}receive-by-sequence-number"
SCHEDULE_MESSAGE: Final = f"{PREFIX}schedule-message"
CANCEL_SCHEDULED_MESSAGE: Final = f"{PREFIX}cancel-scheduled-message"
RENEW_SESSION_LOCK: Final = f"{PREFIX}renew-session-lock"
GET_SESSION_STATE: Final = f"{PREFIX}get-session-state"
SET_SESSION_STATE: Final = f"{PREFIX}set-session-state"
GET_MESSAGE_SESSIONS: Final = f"{PREFIX}get-message-sessions"
ADD_RULE: Final = f"{PREFIX}add-rule"
REMOVE_RULE: Final = f"{PREFIX}remove-rule"
ENUMERATE_RULES: Final = f"{PREFIX}enumerate-rules"
SERVER_TIMEOUT: Final = f"{PREFIX}server-timeout"
"""Application property of a request: how long the service may take, in milliseconds."""

# Application properties of a response.
STATUS_CODE: Final = "statusCode"
STATUS_DESCRIPTION: Final = "statusDescription"
ERROR_CONDITION: Final = "errorCondition"

# `$cbs` has one operation, and other names for the properties of its responses.
PUT_TOKEN: Final = "put-token"
CBS_STATUS_CODE: Final = "status-code"
CBS_STATUS_DESCRIPTION: Final = "status-description"
CBS_ERROR_CONDITION: Final = "error-condition"

# Values of `disposition-status`.
COMPLETED: Final = "completed"
ABANDONED: Final = "abandoned"
DEFERRED: Final = "defered"  # as the service spells it
DEAD_LETTERED: Final = "suspended"
