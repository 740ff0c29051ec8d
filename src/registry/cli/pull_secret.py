"""Write a password of container clients as a pull secret of Kubernetes."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from registry.cli.container_passwords import ContainerPassword
from registry.cli.failure import Misuse

_TYPE: Final = "kubernetes.io/dockerconfigjson"
_LABEL: Final = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_NAMESPACE: Final = re.compile(_LABEL)
_NAME: Final = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:[.]{_LABEL})*")


def pull_secret(name: str, namespace: str | None, login: ContainerPassword) -> dict[str, Any]:
    """Return the Secret's manifest.

    Raises:
        Misuse: Kubernetes does not take the name or the namespace (RFC 1123 §2.1).

    """
    if not _NAME.fullmatch(name):
        raise Misuse(
            f"the name of a Secret is of a-z 0-9 - . and begins with the first, not {name!r}"
        )
    if namespace is not None and not _NAMESPACE.fullmatch(namespace):
        raise Misuse(f"a namespace is at most 63 of a-z 0-9 -, not {namespace!r}")
    pair = base64.b64encode(f"{login.username}:{login.password}".encode()).decode()
    auth = {"username": login.username, "password": login.password, "auth": pair}
    config = msgspec.json.encode({"auths": {login.registry: auth}})
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name} | ({} if namespace is None else {"namespace": namespace}),
        "type": _TYPE,
        "data": {".dockerconfigjson": base64.b64encode(config).decode()},
    }


def yaml_of(manifest: Mapping[str, Any]) -> str:
    """Return a manifest as YAML; each text is quoted as in JSON, which YAML 1.2 contains."""
    lines = []
    for key, value in manifest.items():
        if isinstance(value, str):
            lines.append(f"{key}: {_quoted(value)}")
        else:
            lines.append(f"{key}:")
            lines += [f"  {name}: {_quoted(text)}" for name, text in value.items()]
    return "".join(f"{line}\n" for line in lines)


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()
