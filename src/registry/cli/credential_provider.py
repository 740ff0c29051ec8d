"""``entrepot-credential-provider``: the kubelet's exec plugin for passwords of image pulls.

The kubelet writes a CredentialProviderRequest to the standard input, reads a
CredentialProviderResponse (``credentialprovider.kubelet.k8s.io/v1``) from the standard output, and
logs the standard error
(https://kubernetes.io/docs/reference/config-api/kubelet-credentialprovider.v1/). The password comes
from the access key in the environment, or from the sign-in of ``entrepot login``. The kubelet keeps
it in memory, so it is written to no file.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from cloudcore.command_failures import CommandFailure, Misuse
from cloudcore.commands.records import printable
from registry.cli.client.container_passwords import ContainerPassword, find_source, new_password

NAME: Final = "entrepot-credential-provider"
_VERSION: Final = "credentialprovider.kubelet.k8s.io/v1"
_REQUEST: Final = "CredentialProviderRequest"
_RESPONSE: Final = "CredentialProviderResponse"
_MAX_INPUT: Final = 1 << 20


class _Request(msgspec.Struct, rename="camel"):
    """The fields of a request that are used; the pod's service account token is not."""

    api_version: str
    kind: str
    image: str


def main() -> int:
    """Answer the request on the standard input; return the exit status."""
    try:
        answer = respond(sys.stdin.buffer.read(_MAX_INPUT), os.environ)
    except (CommandFailure, OSError) as error:
        sys.stderr.write(f"{NAME}: {printable(str(error))}\n")
        return 1
    sys.stdout.write(f"{msgspec.json.encode(answer).decode()}\n")
    return 0


def respond(request: bytes, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the response to a request; its `auth` is empty if the image is of another registry.

    Raise `Misuse` if the bytes are not a CredentialProviderRequest; `CommandFailure` if the
    registry refuses, or cannot be reached.
    """
    host = _host_of(_read(request).image)
    source = find_source(host, environ)
    response: dict[str, Any] = {
        "apiVersion": _VERSION,
        "kind": _RESPONSE,
        "cacheKeyType": "Registry",
    }
    if source is None:
        return response | {"cacheDuration": "0s", "auth": {}}
    made = new_password(source.client)
    auth = {host: {"username": made.username, "password": made.password}}
    return response | {"cacheDuration": _cache_duration(made), "auth": auth}


def _read(request: bytes) -> _Request:
    try:
        read = msgspec.json.decode(request, type=_Request)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Misuse(f"the standard input holds no {_REQUEST}: {error}") from None
    if (read.api_version, read.kind) != (_VERSION, _REQUEST):
        raise Misuse(
            f"the request is a {read.kind} of {read.api_version}, not a {_REQUEST} of {_VERSION}; "
            f"set apiVersion: {_VERSION} in the kubelet's CredentialProviderConfig"
        )
    return read


def _host_of(image: str) -> str:
    """Return the registry in an image's reference, with its port if it has one.

    Raise `Misuse` if the reference names no registry.
    """
    host, slash, _ = image.partition("/")
    if not slash or not host:
        raise Misuse(f"the image {image!r} names no registry")
    return host


def _cache_duration(password: ContainerPassword) -> str:
    """Return how long the kubelet may use a password, as a Go duration."""
    return f"{max(0, int(password.renew_at - time.time()))}s"


if __name__ == "__main__":
    sys.exit(main())
