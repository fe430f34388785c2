"""Who may read over HTTP: whoever shows the token, as gRPC wants it or as a browser can give it."""

import base64
import binascii
import hmac

CHALLENGE = 'Basic realm="gpuagent collector: any name, the token as password", charset="UTF-8"'
"""What makes a browser ask. It keeps what it is given for this origin; the token never stands in an address."""


def shows_token(authorization: str | None, token: str) -> bool:
    """Tell whether an Authorization header carries the token, as `Bearer` or as the password of `Basic`."""
    scheme, _, credentials = (authorization or "").partition(" ")
    given = {"bearer": credentials.strip(), "basic": _password(credentials)}.get(scheme.lower(), "")
    return hmac.compare_digest(given.encode(), token.encode())


def _password(credentials: str) -> str:
    """Return the password in `base64(name:password)`; empty where it is none."""
    try:
        return base64.b64decode(credentials, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return ""
