"""``/v1/certificates``: request, upload, show, tag and revoke certificates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from litestar import get, patch, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody
from msgspec import UNSET, structs

from cloudcore.certificate import services
from cloudcore.certificate.certificate import CERTIFICATE, Certificate
from cloudcore.certificate.checks import check_signing_request, check_upload
from cloudcore.certificate.domains import check_domains
from cloudcore.certificate.needs import CertificateNeeds
from cloudcore.certificate.records import (
    CertificateQuery,
    CreateCertificate,
    ExportedKey,
    ManyCertificates,
    OneCertificate,
    UpdateCertificate,
    UploadCertificate,
    certificate_record,
    one_certificate,
)
from cloudcore.certificate.rows import ROWS
from cloudcore.certificate.services import CERTIFICATES
from cloudcore.db.base import Connection
from cloudcore.resource_names import check_name, check_tags
from cloudcore.threads import DOCUMENTS
from cloudcore.web.app import Needs
from cloudcore.web.callers import account_of
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.listing import read_page

PATH: Final = "/v1/certificates"
ONE: Final = PATH + "/{certificate_id:str}"


@post(PATH, status_code=202, opt={"action": "certificate:CreateCertificate", "idempotent": True})
async def create_certificate(
    data: JSONBody[CreateCertificate],
    ctx: NamedDependency[RequestContext],
    needs: Needs[CertificateNeeds],
) -> Reply[OneCertificate]:
    """Let the platform's authority issue a certificate, and renew it from then on."""
    new = structs.replace(_new(ctx, data.name, data.tags), issuer=needs.issuers.current.name)
    domains = None if data.domains is UNSET else data.domains
    algorithm = None if data.key_algorithm is UNSET else data.key_algorithm
    if data.csr_pem is not UNSET:
        request = await DOCUMENTS.run(
            new.account_id, check_signing_request, data.csr_pem, domains, algorithm
        )
        new = structs.replace(
            new, domains=request.domains, key_algorithm=request.key_algorithm, csr=request.der
        )
    else:
        new = structs.replace(
            new, domains=check_domains(domains or ()), key_algorithm=algorithm or new.key_algorithm
        )

    def change(tx: Connection) -> Certificate:
        return services.request_certificate(tx, new, needs.proofs)

    return await ctx.commit(change, wrap=_wrap(ctx), location=_location)


@post(
    PATH + "/upload",
    status_code=201,
    opt={"action": "certificate:UploadCertificate", "idempotent": True},
)
async def upload_certificate(
    data: JSONBody[UploadCertificate],
    ctx: NamedDependency[RequestContext],
    needs: Needs[CertificateNeeds],
) -> Reply[OneCertificate]:
    """Keep a certificate of another authority, with its key. It is not renewed."""
    new = _new(ctx, data.name, data.tags)
    checked = await DOCUMENTS.run(
        new.account_id,
        check_upload,
        data.certificate_pem,
        data.chain_pem,
        data.private_key_pem,
        new.created_at,
        data.domains,
    )
    sealed = await needs.private_keys.seal(new.account_id, new.id, checked.private_key_pem)
    made = structs.replace(
        new,
        domains=checked.domains,
        status="active",
        source="uploaded",
        key_algorithm=checked.key_algorithm,
        certificate_pem=checked.certificate_pem,
        chain_pem=checked.chain_pem,
        fingerprint=checked.fingerprint,
        private_key=sealed.private_key,
        kms_key_id=sealed.kms_key_id,
        issued_at=checked.issued_at,
        expires_at=checked.expires_at,
    )
    return await ctx.commit(CERTIFICATES.create, made, wrap=_wrap(ctx), location=_location)


@get(PATH, opt={"action": "certificate:ListCertificates", "query": CertificateQuery})
async def list_account_certificates(ctx: NamedDependency[RequestContext]) -> ManyCertificates:
    """List the account's certificates, oldest first."""
    account_id, region, query = account_of(ctx), ctx.settings.region, ctx.query(CertificateQuery)
    ctx.authorize(CERTIFICATE.crn(region, account_id, "*"))
    found, meta = await read_page(
        ctx,
        query,
        ROWS.list,
        ROWS.count,
        account_id,
        region,
        (query.name or "",),
        key=lambda each: each.id,
    )
    now = ctx.clock()
    return ManyCertificates(
        certificates=[certificate_record(each, now) for each in found], meta=meta
    )


@get(ONE, opt={"action": "certificate:GetCertificate"})
async def get_certificate(
    certificate_id: FromPath[str], ctx: NamedDependency[RequestContext]
) -> OneCertificate:
    """Return a certificate, with what its domains still need."""
    return one_certificate(await CERTIFICATES.authorized(ctx, certificate_id), ctx.clock())


@patch(ONE, opt={"action": "certificate:UpdateCertificate"})
async def update_certificate(
    certificate_id: FromPath[str],
    data: JSONBody[UpdateCertificate],
    ctx: NamedDependency[RequestContext],
) -> Reply[OneCertificate]:
    """Change the tags of a certificate."""
    found = await CERTIFICATES.authorized(ctx, certificate_id)
    changes, now = CERTIFICATES.given(data), ctx.clock()
    return await ctx.commit(CERTIFICATES.update, found, changes, now, wrap=_wrap(ctx))


@post(
    ONE + "/revoke",
    status_code=202,
    opt={"action": "certificate:RevokeCertificate", "idempotent": True, "statuses": (409,)},
)
async def revoke_certificate(
    certificate_id: FromPath[str],
    ctx: NamedDependency[RequestContext],
    needs: Needs[CertificateNeeds],
) -> Reply[OneCertificate]:
    """Revoke a certificate; the answer shows it as it was, and a GET `revoked` when it is."""
    found = await CERTIFICATES.authorized(ctx, certificate_id)

    def change(tx: Connection) -> Certificate:
        return services.revoke_certificate(tx, found, ctx.clock(), needs.events)

    return await ctx.commit(change, wrap=_wrap(ctx))


@post(
    ONE + "/challenges/recheck",
    status_code=202,
    opt={"action": "certificate:RecheckChallenges", "idempotent": True, "statuses": (409,)},
)
async def recheck_challenges(
    certificate_id: FromPath[str], ctx: NamedDependency[RequestContext]
) -> Reply[OneCertificate]:
    """Look at the records of the domains now; a certificate that failed is tried anew."""
    found = await CERTIFICATES.authorized(ctx, certificate_id)
    return await ctx.commit(services.recheck_challenges, found, ctx.clock(), wrap=_wrap(ctx))


@post(
    ONE + "/export-private-key",
    status_code=200,
    opt={"action": "certificate:ExportPrivateKey", "idempotent": True, "statuses": (409,)},
    response_headers={"Cache-Control": "no-store"},
)
async def export_private_key(
    certificate_id: FromPath[str],
    ctx: NamedDependency[RequestContext],
    needs: Needs[CertificateNeeds],
) -> Reply[ExportedKey]:
    """Return a copy of the private key that was made here, once per key (then 409).

    Under the same ``Idempotency-Key`` the answer is repeated for 24 hours, so that one that was
    lost on its way can be had. The settings of the account may forbid it.
    """
    found = await CERTIFICATES.authorized(ctx, certificate_id)
    await ctx.database.read(services.check_exportable, found)
    private_key_pem = (await needs.private_keys.open(found)).decode()
    now = ctx.clock()

    def wrap(exported: Certificate) -> ExportedKey:
        return ExportedKey(certificate_record(exported, now), private_key_pem)

    return await ctx.commit(services.note_export, found, needs.events, now, wrap=wrap)


def _new(ctx: RequestContext, name: str, tags: Mapping[str, str]) -> Certificate:
    """Return a new certificate of the caller's account that has nothing yet."""
    account_id, region, now = account_of(ctx), ctx.settings.region, ctx.clock()
    check_name(name)
    check_tags(tags)
    ctx.authorize(CERTIFICATE.crn(region, account_id, name))
    return Certificate(
        id=ctx.new_id(),
        account_id=account_id,
        region=region,
        name=name,
        status="issuing",
        source="acme",
        tags=dict(tags),
        created_at=now,
        updated_at=now,
    )


def _wrap(ctx: RequestContext) -> Callable[[Certificate], OneCertificate]:
    now = ctx.clock()
    return lambda made: one_certificate(made, now)


def _location(made: Certificate) -> str:
    return f"{PATH}/{made.id}"


HANDLERS: Final = (
    create_certificate,
    upload_certificate,
    list_account_certificates,
    get_certificate,
    update_certificate,
    revoke_certificate,
    recheck_challenges,
    export_private_key,
)
