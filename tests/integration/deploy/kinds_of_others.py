"""Schemas of the kinds that Kubernetes itself does not have, of exactly the fields that our manifests use.

Read off the CustomResourceDefinitions that the projects generate from their Go types, with their required fields and
their words; that a field is of another name, type or place, or missing, is refused.

- SecurityContextConstraints, Route: github.com/openshift/api, security/v1 and route/v1, zz_generated.crd-manifests;
  https://docs.redhat.com/en/documentation/openshift_container_platform/4.16/html/security_apis and …/network_apis
- Certificate, Issuer: cert-manager.io/v1, https://cert-manager.io/docs/reference/api-docs/
"""

from typing import Any

import fastjsonschema

from tests.support.manifests import Manifest

OF_OTHERS = {
    "SecurityContextConstraints": "security.openshift.io/v1",
    "Route": "route.openshift.io/v1",
    "Issuer": "cert-manager.io/v1",
    "Certificate": "cert-manager.io/v1",
}

_TEXT = {"type": "string", "minLength": 1}
_YES_OR_NO = {"type": "boolean"}


def _fields(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": [*required],
        "additionalProperties": False,
    }


def _list(of: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": of}


def _words(*words: str) -> dict[str, Any]:
    return {"enum": [*words]}


_STRATEGY = _fields({"type": _words("RunAsAny", "MustRunAs", "MustRunAsRange", "MustRunAsNonRoot")})

_SCC = {
    **dict.fromkeys(
        (
            *("allowHostDirVolumePlugin", "allowHostIPC", "allowHostNetwork", "allowHostPID", "allowHostPorts"),
            *("allowPrivilegedContainer", "readOnlyRootFilesystem"),
        ),
        _YES_OR_NO,
    ),
    **dict.fromkeys(
        ("allowedCapabilities", "defaultAddCapabilities", "requiredDropCapabilities", "volumes"), _list(_TEXT)
    ),
    "priority": {"type": "integer"},
}

_SCC_MORE = {
    "allowPrivilegeEscalation": _YES_OR_NO,
    **dict.fromkeys(("fsGroup", "runAsUser", "seLinuxContext", "supplementalGroups"), _STRATEGY),
    **dict.fromkeys(("groups", "users", "seccompProfiles"), _list(_TEXT)),
}

_ROUTE = _fields(
    {
        "to": _fields(
            {"kind": _words("Service"), "name": _TEXT}, {"weight": {"type": "integer", "minimum": 0, "maximum": 256}}
        )
    },
    {
        "port": _fields({"targetPort": {"type": ["string", "integer"], "not": {"enum": ["", 0]}}}),
        # `Allow` is refused beside `passthrough`.
        "tls": _fields(
            {"termination": _words("passthrough")}, {"insecureEdgeTerminationPolicy": _words("None", "Redirect")}
        ),
        "wildcardPolicy": _words("None", "Subdomain"),
    },
)

_ISSUER = {"oneOf": [_fields({"selfSigned": _fields({})}), _fields({"ca": _fields({"secretName": _TEXT})})]}

_CERTIFICATE = _fields(
    {"secretName": _TEXT, "issuerRef": _fields({"name": _TEXT}, {"kind": _words("Issuer", "ClusterIssuer")})},
    {
        "isCA": _YES_OR_NO,
        "commonName": {**_TEXT, "maxLength": 64},
        "duration": {"type": "string", "pattern": r"^(\d+h)?(\d+m)?(\d+s)?$"},
        "dnsNames": _list(_TEXT),
        "ipAddresses": _list(_TEXT),
        "usages": _list(_words("digital signature", "key encipherment", "server auth", "client auth")),
        "privateKey": _fields(
            {},
            {
                "algorithm": _words("RSA", "ECDSA", "Ed25519"),
                "size": {"type": "integer"},
                "rotationPolicy": _words("Never", "Always"),
            },
        ),
    },
)

_CONTENTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "SecurityContextConstraints": (_SCC, _SCC_MORE),
    "Route": ({"spec": _ROUTE}, {}),
    "Issuer": ({"spec": _ISSUER}, {}),
    "Certificate": ({"spec": _CERTIFICATE}, {}),
}


def check(manifest: Manifest) -> None:
    """See that a manifest of one of these kinds is as its owner wants it.

    Raises:
        JsonSchemaException: it is not; says where.
    """
    kind = manifest["kind"]
    head = {"apiVersion": _words(OF_OTHERS[kind]), "kind": _words(kind), "metadata": {"type": "object"}}
    required, optional = _CONTENTS[kind]
    fastjsonschema.validate(_fields({**head, **required}, optional), dict(manifest))
