"""The calls of the ACME library over our own client: vetted addresses, no proxies or redirects."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any, Final

import requests
from acme import messages
from acme.client import ClientNetwork
from josepy.jwa import ES256
from josepy.jwk import JWK

from cloudcore.outbound.destinations import Allowed, origin_of
from cloudcore.outbound.http_client import HttpClient

MOST_BYTES: Final = 1024 * 1024
"""Of an answer; a chain of certificates has some 10 KiB."""
NONCE_TRIES: Final = 8
"""How often a request is sent whose nonce is refused: authorities forget nonces (RFC 8555 §6.5)."""


class VettedNetwork(ClientNetwork):
    """Signs requests as the library does, and sends them to vetted addresses.

    The operator names the directory, so its own origin may have any address. Other origins that it
    leads to must be public. Not for a thread that runs an event loop.
    """

    def __init__(self, directory: str, setting: str, key: JWK, roots: str = "") -> None:
        """Sign with `key`; `setting` names the directory in messages.

        `roots` is a file of roots, in PEM, that the directory's certificate may be of; empty: the
        public ones.

        Raise `OSError` if `roots` cannot be read, or holds no certificate.
        """
        super().__init__(key, alg=ES256, user_agent="Entrepot")
        self._allowed = Allowed(setting, (origin_of(directory),))
        self._tls = ssl.create_default_context(cafile=Path(roots)) if roots else None

    def post(self, *args: Any, **kwargs: Any) -> requests.Response:  # noqa: ANN401 - the library's
        """Send a signed object; repeat it if the authority refuses the nonce."""
        for _ in range(NONCE_TRIES - 1):
            try:
                return self._post_once(*args, **kwargs)
            except messages.Error as error:
                if error.code != "badNonce":
                    raise
        return self._post_once(*args, **kwargs)

    def _send_request(
        self,
        method: str,
        url: str,
        *_args: Any,  # noqa: ANN401 - the library's
        headers: dict[str, str] | None = None,
        data: str | None = None,
        **_kwargs: Any,  # noqa: ANN401 - the library's
    ) -> requests.Response:
        body = None if data is None else data.encode()
        return asyncio.run(self._ask(method, url, headers or {}, body))

    async def _ask(
        self, method: str, url: str, headers: dict[str, str], body: bytes | None
    ) -> requests.Response:
        client = HttpClient(self._allowed, tls=self._tls, max_idle=0)
        sent = {"User-Agent": self.user_agent, **headers}
        try:
            async with client.request(method, url, sent, body) as answer:
                content = await answer.read(MOST_BYTES)
        finally:
            client.close()
        made = requests.Response()
        made.status_code, made.url, made.encoding = answer.head.status, url, "utf-8"
        made.headers.update(answer.head.headers)
        made.request = requests.Request(method, url).prepare()
        # As the library's own transport leaves it, once it has read a body.
        vars(made).update(_content=content, _content_consumed=True)
        return made
