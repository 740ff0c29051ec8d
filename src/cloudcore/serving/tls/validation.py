"""Answer an authority that validates our names: ``tls-alpn-01`` and ``http-01``.

The ACME client writes the proofs into a folder, which exists only during the validation; every
worker answers from that folder. Sources: RFC 8737, and RFC 8555 §8.3.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from cloudcore.serving.asgi import Receive, Scope, Send
from cloudcore.serving.planes import host_of

_PROTOCOL: Final = "acme-tls/1"
_OFFERED: Final = bytes([len(_PROTOCOL)]) + _PROTOCOL.encode()
"""The protocol's name as a TLS hello lists it."""
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{1,200}")
_PLACE: Final = "/.well-known/acme-challenge/"


def proof_file(folder: Path, name: str) -> Path:
    """Return the file of the certificate, with key, that proves the control of a name."""
    return folder / f"{name}.pem"


def token_file(folder: Path, token: str) -> Path:
    """Return the file with the answer to the challenge with this token.

    Raise `ValueError` if the token is not 1 to 200 characters of base64url.
    """
    if _TOKEN.fullmatch(token) is None:
        raise ValueError("a token is of base64url")
    return folder / f"{token}.token"


class Validations:
    """The answers to an ACME authority's challenges, read from a folder."""

    def __init__(self, folder: Path, names: Collection[str]) -> None:
        """Answer for `names`, in lower case, from `folder`."""
        self._folder = folder
        self._names = names

    @property
    def are_awaited(self) -> bool:
        """Return True while an authority may request proofs."""
        return self._folder.exists()

    def context_for(self, hello: bytes) -> ssl.SSLContext | None:
        """Return the TLS context for a validation, or None if the hello does not request one.

        The hello is searched for ``acme-tls/1`` as ALPN lists it, not parsed: a client that has
        these bytes elsewhere gets a certificate that proves nothing to it, which is harmless.
        """
        if _OFFERED not in hello:
            return None
        context = _context()
        context.sni_callback = self._choose
        return context

    def find_answer(self, path: str) -> bytes | None:
        """Return the answer to an authority's plain HTTP request, or None if there is none."""
        token = path.removeprefix(_PLACE)
        if token == path or _TOKEN.fullmatch(token) is None:
            return None
        try:
            return token_file(self._folder, token).read_bytes()
        except OSError:
            return None

    def _choose(
        self, connection: ssl.SSLObject, name: str | None, _context_before: ssl.SSLContext
    ) -> int | None:
        if name is None or name.lower() not in self._names:
            return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
        context = _context()
        try:
            context.load_cert_chain(proof_file(self._folder, name.lower()))
        except OSError:  # it is answered already
            return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
        connection.context = context
        return None


class ValidationApplication:
    """An ASGI application for plain HTTP: it answers authorities, and redirects others to https."""

    def __init__(self, validations: Validations, urls: Sequence[str]) -> None:
        """Redirect clients to the one of `urls` whose host they requested, or else to the first."""
        self._validations = validations
        self._url = urls[0]
        self._urls = {host_of([(b"host", urlsplit(url).netloc.encode())]): url for url in urls}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Answer a request; refuse a method that writes, since its body was sent unencrypted."""
        path = scope["path"]
        kind = [(b"content-type", b"application/octet-stream")]
        found = self._validations.find_answer(path) if path.startswith(_PLACE) else None
        if scope["method"] not in ("GET", "HEAD"):
            status, headers, body = 403, [], b"use https://\n"
        elif found is not None:
            status, headers, body = 200, kind, found
        elif path.startswith(_PLACE):
            status, headers, body = 404, [], b"not found\n"
        else:
            query = scope["query_string"]
            url = self._urls.get(host_of(scope["headers"]), self._url)
            target = url.encode() + scope["raw_path"] + (b"?" + query if query else b"")
            status, headers, body = 308, [(b"location", target)], b""
        headers = [*headers, (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols([_PROTOCOL])
    return context
