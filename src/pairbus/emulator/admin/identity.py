"""Tokens over HTTP, as the managed identity of Azure App Service provides them.

GET /$pairbus/identity?resource=https://servicebus.azure.net, with the header X-IDENTITY-HEADER,
returns a token with the role Data Owner. With the environment variables IDENTITY_ENDPOINT (this
URL) and IDENTITY_HEADER, `DefaultAzureCredential` and `ManagedIdentityCredential` of every
azure-identity library get their tokens here.
"""

import hmac
import json

from pairbus.emulator.connections.http import HttpRequest, HttpResponse
from pairbus.emulator.token_issuer import Role, TokenIssuer

IDENTITY_PATH = "$pairbus/identity"


class IdentityEndpoint:
    """Handles requests for tokens. They have no Authorization header."""

    def __init__(self, issuer: TokenIssuer) -> None:
        self._issuer = issuer

    def handle(self, request: HttpRequest) -> HttpResponse:
        """Return the response to a request."""
        header = request.header("X-IDENTITY-HEADER") or ""
        if not hmac.compare_digest(header.encode(), self._issuer.identity_header.encode()):
            return _response(401, {"message": "The header X-IDENTITY-HEADER is missing or wrong."})
        resource = request.query.get("resource")
        if request.method != "GET" or not resource:
            return _response(400, {"message": "Use GET with the parameter resource."})
        token = self._issuer.issue(Role.OWNER, audience=resource)
        return _response(
            200,
            {
                "access_token": token.token,
                "expires_on": str(token.expires_on),
                "resource": resource,
                "token_type": "Bearer",
            },
        )


def _response(status: int, content: dict[str, str]) -> HttpResponse:
    return HttpResponse(
        status=status, body=json.dumps(content).encode(), content_type="application/json"
    )
