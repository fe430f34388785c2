"""Who reads over HTTP: whose token it is, shown as gRPC wants it or as a browser can give it."""

import base64
import binascii

# What makes a browser ask. It keeps what it is given for this origin; the token never stands in an address.
CHALLENGE = 'Basic realm="gpuagent collector: any name, the token as password", charset="UTF-8"'


def given_token(authorization: str | None) -> str:
    """Return the token in an Authorization header, as `Bearer` or as the password of `Basic`; empty without one."""
    scheme, _, credentials = (authorization or "").partition(" ")
    return {"bearer": credentials.strip(), "basic": _password(credentials)}.get(scheme.lower(), "")


def _password(credentials: str) -> str:
    """Return the password in `base64(name:password)`; empty where it is none."""
    try:
        return base64.b64decode(credentials, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return ""
