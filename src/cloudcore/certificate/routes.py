"""``/v1/certificates``: request, upload, recheck, revoke and export, and the standard methods.

``/v1/certificate-authorities`` has the files that clients need to check certificates, so all its
routes are public.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from litestar import Response, get, post
from litestar.params import FromPath, JSONBody
from msgspec import UNSET, Meta, UnsetType, field, structs

from cloudcore.certificate import embedded, services
from cloudcore.certificate.authority import pem
from cloudcore.certificate.certificate import CERTIFICATE, Certificate, KeyAlgorithm
from cloudcore.certificate.checks import (
    MOST_KEY_PEM,
    MOST_PEM,
    MOST_REQUEST_PEM,
    check_signing_request,
    check_upload,
)
from cloudcore.certificate.domains import MOST_DOMAINS, check_domains
from cloudcore.certificate.embedded import AUTHORITIES, Authority
from cloudcore.certificate.needs import CertificateNeeds
from cloudcore.certificate.services import CERTIFICATES
from cloudcore.errors import NotFound
from cloudcore.resource_names import check_tags
from cloudcore.resources.routes import custom_method
from cloudcore.threads import DOCUMENTS
from cloudcore.web.app import Context, Needs
from cloudcore.web.context import Reply, RequestContext
from cloudcore.wire import RequestBody, ResponseBody

if TYPE_CHECKING:
    CertificateRecord = ResponseBody
else:
    CertificateRecord = CERTIFICATES.bodies.record

CertificateName = Annotated[str, Meta(min_length=1, max_length=63)]
Domains = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=255)]],
    Meta(min_length=1, max_length=MOST_DOMAINS),
]
Pem = Annotated[str, Meta(max_length=MOST_PEM)]


class CreateCertificate(RequestBody):
    """A certificate that an authority is to issue."""

    name: CertificateName
    domains: Domains | UnsetType = UNSET
    """In DNS form (``xn--``); the first label of a wildcard is only a star. With `csr_pem` they may
    be left out."""
    key_algorithm: KeyAlgorithm | UnsetType = UNSET
    """Algorithm of the new key; by default ``ecdsa-p256``, or with `csr_pem` that of its key."""
    csr_pem: Annotated[str, Meta(max_length=MOST_REQUEST_PEM)] | UnsetType = UNSET
    """A signing request (PKCS #10 in PEM), to keep the private key to yourself. The certificate is
    for exactly the names in the request, and each renewal uses the same key."""
    tags: dict[str, str] = field(default_factory=dict)


class UploadCertificate(RequestBody):
    """A certificate of another authority, with its key."""

    name: CertificateName
    certificate_pem: Pem
    """The certificate without its chain."""
    private_key_pem: Annotated[str, Meta(max_length=MOST_KEY_PEM)]
    """The private key, without a password; it is never shown again."""
    chain_pem: Pem = ""
    """The issuers in order, beginning with the one that signed the certificate."""
    domains: Domains | None = None
    """Domains that the certificate must be for, if any."""
    tags: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Show no key."""
        return f"UploadCertificate({self.name!r})"


class ExportedKey(ResponseBody):
    """A certificate with its private key."""

    certificate: CertificateRecord
    private_key_pem: str
    """PKCS #8 without a password: a secret. It can be exported once."""

    def __repr__(self) -> str:
        """Show no key."""
        return "ExportedKey"


@CERTIFICATES.answers.creates(CERTIFICATE.path, "certificate:CreateCertificate", status=202)
async def create_certificate(
    data: JSONBody[CreateCertificate], ctx: Context, needs: Needs[CertificateNeeds]
) -> Reply[ResponseBody]:
    """Have the platform's authority issue a certificate, and renew it from then on."""
    new = _new(ctx, data, status="issuing", source="acme", issuer=needs.issuers.current.name)
    domains = None if data.domains is UNSET else data.domains
    algorithm = None if data.key_algorithm is UNSET else data.key_algorithm
    if data.csr_pem is not UNSET:
        request = await DOCUMENTS.run(
            new.account_id, check_signing_request, data.csr_pem, domains, algorithm
        )
        new = structs.replace(new, **request._asdict())
    else:
        new = structs.replace(
            new, domains=check_domains(domains or ()), key_algorithm=algorithm or new.key_algorithm
        )
    return await ctx.commit(
        services.request_certificate,
        new,
        needs.proofs,
        wrap=CERTIFICATES.one,
        location=CERTIFICATES.location,
    )


@CERTIFICATES.answers.creates(CERTIFICATE.path + "/upload", "certificate:UploadCertificate")
async def upload_certificate(
    data: JSONBody[UploadCertificate], ctx: Context, needs: Needs[CertificateNeeds]
) -> Reply[ResponseBody]:
    """Store a certificate of another authority, with its key. It is not renewed."""
    new = _new(ctx, data, status="active", source="uploaded")
    checked = await DOCUMENTS.run(
        new.account_id,
        check_upload,
        data.certificate_pem,
        data.chain_pem,
        data.private_key_pem,
        new.created_at,
        data.domains,
    )
    key_pem = data.private_key_pem.encode()
    kms_key_id, sealed = await needs.private_keys.seal(new.account_id, new.id, key_pem)
    made = structs.replace(new, **checked._asdict(), private_key=sealed, kms_key_id=kms_key_id)
    return await ctx.commit(
        CERTIFICATES.create,
        made,
        wrap=CERTIFICATES.at(ctx.clock()),
        location=CERTIFICATES.location,
    )


@custom_method(CERTIFICATES, "revoke", "certificate:RevokeCertificate", status=202, statuses=(409,))
async def revoke_certificate(
    certificate_id: FromPath[str], ctx: Context, needs: Needs[CertificateNeeds]
) -> Reply[ResponseBody]:
    """Begin to revoke a certificate; its status is `revoked` when this is done.

    The answer shows the certificate as it was before.
    """
    found, now = await CERTIFICATES.authorized(ctx, certificate_id), ctx.clock()
    return await ctx.commit(
        services.revoke_certificate, found, now, needs.events, wrap=CERTIFICATES.at(now)
    )


@custom_method(
    CERTIFICATES, "challenges/recheck", "certificate:RecheckChallenges", status=202, statuses=(409,)
)
async def recheck_challenges(certificate_id: FromPath[str], ctx: Context) -> Reply[ResponseBody]:
    """Check the DNS records of the domains now; a failed certificate is tried again."""
    found, now = await CERTIFICATES.authorized(ctx, certificate_id), ctx.clock()
    return await ctx.commit(services.recheck_challenges, found, now, wrap=CERTIFICATES.at(now))


@post(
    CERTIFICATE.path_of_one + "/export-private-key",
    status_code=200,
    opt={"action": "certificate:ExportPrivateKey", "idempotent": True, "statuses": (409,)},
    response_headers={"Cache-Control": "no-store"},
)
async def export_private_key(
    certificate_id: FromPath[str], ctx: Context, needs: Needs[CertificateNeeds]
) -> Reply[ExportedKey]:
    """Return a copy of a private key that was made here, once per key (then 409).

    With the same ``Idempotency-Key``, the answer is repeated for 24 hours, in case it was lost on
    its way. The settings of the account may forbid the export.
    """
    found = await CERTIFICATES.authorized(ctx, certificate_id)
    await ctx.database.read(services.check_exportable, found)
    private_key_pem = (await needs.private_keys.open(found)).decode()
    now = ctx.clock()

    def wrap(exported: Certificate) -> ExportedKey:
        shown = CERTIFICATES.bodies.shown(services.as_of(exported, now))
        return ExportedKey(certificate=shown, private_key_pem=private_key_pem)

    return await ctx.commit(services.note_export, found, needs.events, now, wrap=wrap)


def _new(
    ctx: RequestContext, data: CreateCertificate | UploadCertificate, **fields: object
) -> Certificate:
    """Return a new record in the caller's account; nothing is issued or uploaded yet."""
    check_tags(data.tags)
    return CERTIFICATES.new(ctx, {"name": data.name, "tags": data.tags, **fields})


_AUTHORITY_PATH: Final = AUTHORITIES + "/{authority_id:str}"
PEM: Final = "application/x-pem-file"
DER: Final = "application/pkix-cert"
LIST: Final = "application/pkix-crl"
_KEPT_SECONDS: Final = 3600


@get(AUTHORITIES + "/root", opt={"action": None, "public": True, "media_types": (PEM,)})
async def get_root(ctx: Context) -> Response[bytes]:
    """Return the root certificates, which clients must trust, in PEM; after 15 years, two."""
    found = await ctx.database.read(embedded.list_authorities)
    now = ctx.clock()
    roots = [each for each in found if each.role == "root" and each.expires_at > now]
    if not roots:
        raise NotFound("this install has no authority of its own")
    return _answer("".join(pem(each.parsed) for each in roots).encode(), PEM)


@get(_AUTHORITY_PATH + "/certificate", opt={"action": None, "public": True, "media_types": (DER,)})
async def get_authority_certificate(authority_id: FromPath[str], ctx: Context) -> Response[bytes]:
    """Return the certificate of an authority in DER (RFC 5280 §4.2.2.1)."""
    return _answer((await _authority(ctx, authority_id)).certificate, DER)


@get(
    _AUTHORITY_PATH + "/revocation-list",
    opt={"action": None, "public": True, "media_types": (LIST,)},
)
async def get_revocation_list(authority_id: FromPath[str], ctx: Context) -> Response[bytes]:
    """Return an authority's revocation list in DER (RFC 5280 §5); it is signed daily."""
    return _answer((await _authority(ctx, authority_id)).revocation_list, LIST)


async def _authority(ctx: RequestContext, authority_id: str) -> Authority:
    found = await ctx.database.read(embedded.find_authority, authority_id)
    if found is None:
        raise NotFound("there is no such authority")
    return found


def _answer(content: bytes, media_type: str) -> Response[bytes]:
    headers = {"Cache-Control": f"public, max-age={_KEPT_SECONDS}"}
    return Response(content, headers=headers, media_type=media_type)
