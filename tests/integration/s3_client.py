"""Requests of the S3 endpoint in this process, signed with the time of the install's clock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final
from xml.etree.ElementTree import Element, fromstring

import httpx

from cloudcore.clock import MICROSECONDS
from cloudcore.storage.s3.signature import SignedRequest
from tests.integration.served_world import Served, Tenant
from tests.s3_signing import presigned, signed

HOST: Final = "s3.example"
REGION: Final = "local"


@dataclass
class S3Client:
    """A signer in front of an install."""

    served: Served
    key_id: str
    secret: str
    token: str = ""
    """Of temporary keys."""
    host: str = field(default=HOST)

    async def ask(
        self, method: str, target: str, body: bytes = b"", payload: str = "", **headers: str
    ) -> httpx.Response:
        """Send a request; `payload` is what is said of the body, by default its SHA-256."""
        request = self.sign(method, target, body, payload, **headers)
        return await self.send(request, body)

    def sign(
        self, method: str, target: str, body: bytes = b"", payload: str = "", **headers: str
    ) -> SignedRequest:
        """Return a request with its ``Authorization``."""
        named = [(name.replace("_", "-"), value) for name, value in headers.items()]
        if self.token:
            named.append(("x-amz-security-token", self.token))
        date, scope = self.now()
        return signed(
            method,
            target,
            *named,
            payload=payload or sha256(body).hexdigest(),
            date=date,
            scope=scope,
            key_id=self.key_id,
            secret=self.secret,
        )

    def presign(self, method: str, target: str, expires: int = 60) -> SignedRequest:
        """Return a request with a signature in its query."""
        date, scope = self.now()
        return presigned(
            method,
            target,
            date=date,
            scope=scope,
            key_id=self.key_id,
            secret=self.secret,
            expires=str(expires),
        )

    def now(self) -> tuple[str, str]:
        """Return the date and the scope of a signature now."""
        date = datetime.fromtimestamp(self.served.clock.now / MICROSECONDS, UTC)
        text = date.strftime("%Y%m%dT%H%M%SZ")
        return text, f"{text[:8]}/{REGION}/s3/aws4_request"

    async def send(self, request: SignedRequest, body: bytes = b"") -> httpx.Response:
        """Send a request as it is; refuse an answer that calls it a failure of the server."""
        answer = await self.receive(request, body)
        assert answer.status_code < 500, answer.text
        return answer

    async def receive(self, request: SignedRequest, body: bytes = b"") -> httpx.Response:
        """Send a request as it is; return any answer."""
        query = b"?" + request.query if request.query else b""
        transport = httpx.ASGITransport(self.served.app, client=("198.51.100.7", 40_000))
        async with httpx.AsyncClient(transport=transport) as client:
            is_chunked = any(name == b"transfer-encoding" for name, _ in request.headers)
            return await client.send(
                httpx.Request(
                    request.method,
                    httpx.URL(f"http://{self.host}").copy_with(raw_path=request.raw_path + query),
                    headers=list(request.headers),
                    content=_pieces(body) if is_chunked else body,
                )
            )

    async def done(self, method: str, target: str, body: bytes = b"", **more: str) -> Element:
        """Send a request that succeeds; return its document."""
        answer = await self.ask(method, target, body, **more)
        assert answer.is_success, (method, target, answer.text)
        return fromstring(answer.content) if answer.content else Element("none")

    async def begin(self, target: str, **headers: str) -> str:
        """Begin an upload in parts; return its path with its id."""
        (upload,) = texts(await self.done("POST", f"{target}?uploads", b"", **headers), "UploadId")
        return f"{target}?uploadId={upload}"

    async def code(self, method: str, target: str, body: bytes = b"", **more: str) -> str:
        """Send a request that is refused; return its code."""
        return code_of(await self.ask(method, target, body, **more))


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    yield body


def code_of(answer: httpx.Response) -> str:
    """Return the code of a refusal."""
    assert not answer.is_success, answer.text
    code = fromstring(answer.content).findtext("Code")
    assert code is not None, answer.text
    return code


def texts(document: Element, name: str) -> list[str]:
    """Return the texts of all elements of a name."""
    return [each.text or "" for each in document.iter() if each.tag.rpartition("}")[2] == name]


def completion(*parts: tuple[int, str, str]) -> bytes:
    """Return the document that completes an upload with parts: numbers, ETags, more elements."""
    listed = "".join(
        f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag>{more}</Part>"
        for number, etag, more in parts
    )
    return f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()


def deletion(*keys: str) -> bytes:
    """Return the document that deletes objects at once."""
    listed = "".join(f"<Object><Key>{key}</Key></Object>" for key in keys)
    return f"<Delete>{listed}</Delete>".encode()


def client_of(served: Served, tenant: Tenant) -> S3Client:
    """Return a client with the access key of a tenant's program."""
    return S3Client(served, tenant.access_key_id, tenant.secret)


async def v1(s3: S3Client, method: str, path: str, body: object = None, **more: Any) -> Any:  # noqa: ANN401
    """Send a request of the program to ``/v1``, which succeeds; return its answer."""
    answer = await s3.served.ask(
        method, path, body, token=more.pop("token", s3.served.acme.program_token), **more
    )
    assert answer.is_success, answer.text
    return answer
