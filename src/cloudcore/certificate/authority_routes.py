"""``/v1/certificate-authorities``: what clients need to trust and to check certificates.

All of it is public: clients that check a certificate have no credentials.
"""

from __future__ import annotations

from typing import Final

from cryptography import x509
from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromPath

from cloudcore.certificate import embedded
from cloudcore.certificate.authority import pem
from cloudcore.certificate.embedded import AUTHORITIES, Authority
from cloudcore.errors import NotFound
from cloudcore.web.context import RequestContext

ONE: Final = AUTHORITIES + "/{authority_id:str}"
PEM: Final = "application/x-pem-file"
DER: Final = "application/pkix-cert"
LIST: Final = "application/pkix-crl"
_KEPT_SECONDS: Final = 3600


@get(AUTHORITIES + "/root", opt={"action": None, "public": True, "media_types": (PEM,)})
async def get_root(ctx: NamedDependency[RequestContext]) -> Response[bytes]:
    """Return the root certificates in PEM, which clients are to trust; after 15 years two."""
    found = await ctx.database.read(embedded.list_authorities)
    now = ctx.clock()
    roots = [each for each in found if each.role == "root" and each.expires_at > now]
    if not roots:
        raise NotFound("this install has no authority of its own")
    texts = [pem(x509.load_der_x509_certificate(each.certificate)) for each in roots]
    return _answer("".join(texts).encode(), PEM)


@get(ONE + "/certificate", opt={"action": None, "public": True, "media_types": (DER,)})
async def get_authority_certificate(
    authority_id: FromPath[str], ctx: NamedDependency[RequestContext]
) -> Response[bytes]:
    """Return the certificate of an authority in DER (RFC 5280 §4.2.2.1)."""
    return _answer((await _authority(ctx, authority_id)).certificate, DER)


@get(ONE + "/revocation-list", opt={"action": None, "public": True, "media_types": (LIST,)})
async def get_revocation_list(
    authority_id: FromPath[str], ctx: NamedDependency[RequestContext]
) -> Response[bytes]:
    """Return what an authority has revoked, in DER (RFC 5280 §5); it is signed daily."""
    return _answer((await _authority(ctx, authority_id)).revocation_list, LIST)


async def _authority(ctx: RequestContext, authority_id: str) -> Authority:
    found = await ctx.database.read(embedded.find_authority, authority_id)
    if found is None:
        raise NotFound("there is no such authority")
    return found


def _answer(content: bytes, media_type: str) -> Response[bytes]:
    headers = {"Cache-Control": f"public, max-age={_KEPT_SECONDS}"}
    return Response(content, headers=headers, media_type=media_type)


HANDLERS: Final = (get_root, get_authority_certificate, get_revocation_list)
