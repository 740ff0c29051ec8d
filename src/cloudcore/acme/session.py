"""One session with an ACME authority, run in a process of its own."""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import josepy.errors
import requests
from acme import challenges, errors, messages
from acme.client import ClientNetwork, ClientV2
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from josepy.jwa import ES256
from josepy.jwk import JWK, JWKEC

from cloudcore.acme.client import (
    AcmeRefused,
    AcmeTask,
    AcmeUnreachable,
    ChallengeProof,
    ChildMessage,
    Directory,
    DomainProblem,
    Publish,
    read_message,
    write_message,
)
from cloudcore.outbound.destinations import Allowed, NotAllowed, origin_of
from cloudcore.outbound.http_client import HttpClient
from cloudcore.outbound.http_connection import RequestFailed

MOST_BYTES: Final = 1024 * 1024
"""Maximum bytes of a response; a chain of certificates has some 10 KiB."""
NONCE_TRIES: Final = 8
"""Maximum tries of a request whose nonce is refused: authorities forget nonces (RFC 8555 §6.5)."""


class VettedNetwork(ClientNetwork):
    """The library's HTTP client, restricted to vetted addresses.

    The operator configured the directory's URL, so its origin may have any address. Other origins
    that the directory refers to must have public addresses. Do not use this in a thread that runs
    an event loop.
    """

    def __init__(self, directory: Directory, key: JWK) -> None:
        """Sign with `key`; raise `OSError` if `directory.roots` is no file with certificates."""
        super().__init__(key, alg=ES256, user_agent="Entrepot")
        self._allowed = Allowed(directory.setting, (origin_of(directory.url),))
        roots = directory.roots
        self._tls = ssl.create_default_context(cafile=Path(roots)) if roots else None

    def post(self, *args: Any, **kwargs: Any) -> requests.Response:  # noqa: ANN401 - the library's
        """Send a signed object; repeat it with a new nonce if the authority refuses the nonce."""
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


_PASSING: Final = frozenset({"rateLimited", "serverInternal", "badNonce"})
"""Problem types that are temporary; all others are refusals."""


@contextmanager
def _translating_errors() -> Iterator[None]:
    """Turn the ACME library's exceptions into `AcmeRefused` and `AcmeUnreachable`."""
    try:
        yield
    except messages.Error as error:
        raise _of_problem(error) from None
    except errors.IssuanceError as error:
        raise _of_problem(error.error) from None
    except errors.ValidationError as error:
        raise _of_validation(error) from None
    except errors.TimeoutError:
        raise AcmeUnreachable("it did not decide in time") from None
    except (RequestFailed, NotAllowed) as error:
        raise AcmeUnreachable(str(error)) from None
    except (errors.Error, josepy.errors.Error, requests.RequestException, KeyError) as error:
        words = str(error)[:200] or type(error).__name__
        raise AcmeUnreachable(f"it does not answer as ACME wants it: {words}") from None


def _of_problem(error: messages.Error) -> AcmeRefused | AcmeUnreachable:
    words = error.detail or error.description or error.typ
    for each in error.subproblems or ():
        words += f"; {each.identifier.value if each.identifier else ''}: {each.detail}"
    code = error.code or error.typ
    if code in _PASSING:
        return AcmeUnreachable(words)
    return AcmeRefused(code, words)


def _of_validation(error: errors.ValidationError) -> AcmeRefused:
    found = []
    for authorization in error.failed_authzrs:
        for each in authorization.body.challenges:
            if each.error is not None:
                name = authorization.body.identifier.value
                domain = f"*.{name}" if authorization.body.wildcard else name
                detail = each.error.detail or each.error.typ
                found.append(DomainProblem(domain, each.error.code or each.error.typ, detail))
    words = "; ".join(f"{each.domain}: {each.detail}" for each in found)
    return AcmeRefused(found[0].code if found else "unauthorized", words, tuple(found))


ORDER_SECONDS: Final = 180
"""Maximum seconds for an authority to validate and sign."""
_ALREADY_REVOKED: Final = "alreadyRevoked"


class TlsAlpnResponse(challenges.KeyAuthorizationChallengeResponse):
    """The message that a ``tls-alpn-01`` challenge is ready; the library has no such class."""

    typ = "tls-alpn-01"


class TlsAlpn(challenges.KeyAuthorizationChallenge):
    """The challenge ``tls-alpn-01`` (RFC 8737)."""

    typ = "tls-alpn-01"
    response_cls = TlsAlpnResponse

    def validation(self, account_key: JWK, **_kwargs: Any) -> str:  # noqa: ANN401 - the library's
        """Return the key authorization; the validation's certificate contains its SHA-256."""
        return self.key_authorization(account_key)


challenges.ChallengeResponse.register(TlsAlpnResponse)
challenges.Challenge.register(TlsAlpn)


class AcmeSession:
    """A session with an authority; its methods block, and need a thread without an event loop."""

    def __init__(self, directory: Directory, key: ec.EllipticCurvePrivateKey, email: str) -> None:
        """Register or find the account of `key`; the operator has agreed to the authority's terms.

        Raise `AcmeRefused` if the authority rejects the account, `AcmeUnreachable` if it did not
        answer.
        """
        self._key = JWKEC(key=key)
        with _translating_errors():
            network = VettedNetwork(directory, self._key)
            self._client = ClientV2(ClientV2.get_directory(directory.url, network), network)
            wanted = messages.NewRegistration.from_data(
                email=email or None, terms_of_service_agreed=True
            )
            try:
                self._client.new_account(wanted)
            except errors.ConflictError as found:  # it exists
                network.account = messages.RegistrationResource(
                    body=messages.Registration(), uri=found.location
                )

    def order(self, csr_der: bytes, kind: str, publish: Publish) -> str:
        """Return the new certificate and its chain, in PEM, for a signing request.

        `kind` is the type of challenge whose proofs `publish` can publish, such as ``dns-01``.

        Raise `AcmeRefused` if the authority will not sign, or could not validate a domain,
        `AcmeUnreachable` if it did not answer in time.
        """
        csr = x509.load_der_x509_csr(csr_der).public_bytes(Encoding.PEM)
        with _translating_errors():
            order = self._client.new_order(csr)
            pending = list(self._pending(order, kind))
            publish([proof for _, proof in pending])
            for body, _ in pending:
                self._client.answer_challenge(body, body.response(self._key))
            deadline = datetime.now() + timedelta(seconds=ORDER_SECONDS)  # noqa: DTZ005 - the library's
            return str(self._client.poll_and_finalize(order, deadline).fullchain_pem)

    def revoke(self, certificate_der: bytes, reason: int) -> None:
        """Revoke a certificate that this account ordered; accept one that is already revoked.

        `reason` is a code of RFC 5280 §5.3.1.

        Raise `AcmeRefused` if the authority will not revoke it, `AcmeUnreachable` if it did not
        answer.
        """
        certificate = x509.load_der_x509_certificate(certificate_der)
        try:
            with _translating_errors():
                self._client.revoke(certificate, reason)
        except AcmeRefused as refusal:
            if refusal.code != _ALREADY_REVOKED:
                raise

    def _pending(
        self, order: messages.OrderResource, kind: str
    ) -> Iterator[tuple[messages.ChallengeBody, ChallengeProof]]:
        """Yield (challenge, proof) for each domain that the authority has not yet validated.

        Raise `AcmeRefused` if the authority does not offer a challenge of this `kind`.
        """
        for each in order.authorizations:
            name = each.body.identifier.value
            domain = f"*.{name}" if each.body.wildcard else name
            if each.body.status == messages.STATUS_VALID:
                continue
            for body in each.body.challenges:
                if body.chall.typ == kind:
                    yield (
                        body,
                        ChallengeProof(
                            domain, body.chall.encode("token"), body.validation(self._key)
                        ),
                    )
                    break
            else:
                raise AcmeRefused("unsupported", f"{domain}: it offers no {kind}")


def main() -> None:
    """Read an `AcmeTask` from standard input, do it, and write the result to standard output."""
    task = read_message(sys.stdin.buffer, AcmeTask)
    try:
        said = ChildMessage(chain=_do(task))
    except AcmeRefused as error:
        said = ChildMessage(refused=(error.code, str(error) or "it gives no reason", error.domains))
    except (AcmeUnreachable, OSError) as error:
        said = ChildMessage(unreachable=str(error) or "it gives no reason")
    write_message(sys.stdout.buffer, said)


def _do(task: AcmeTask) -> str:
    key = load_pem_private_key(task.key, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    session = AcmeSession(task.directory, key, task.email)
    if task.certificate:
        session.revoke(task.certificate, task.reason)
        return ""
    return session.order(task.csr, task.kind, _publish)


def _publish(proofs: Sequence[ChallengeProof]) -> None:
    write_message(sys.stdout.buffer, ChildMessage(proofs=tuple(proofs)))
    read_message(sys.stdin.buffer, str)


if __name__ == "__main__":
    main()
