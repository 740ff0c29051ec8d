"""``/v1/certificate-settings``: settings of an account for all its certificates."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from litestar import get, patch
from litestar.params import JSONBody
from msgspec import UNSET, UnsetType

from cloudcore.certificate.rows import certificate_settings
from cloudcore.db.base import Connection
from cloudcore.db.rows import given, insert_or_change
from cloudcore.db.statement import Statement
from cloudcore.resource_names import Crn
from cloudcore.web.app import Context
from cloudcore.web.caller_kinds import account_of
from cloudcore.web.context import Reply, RequestContext
from cloudcore.wire import RFC3339, RequestBody, ResponseBody, rfc3339

_s = certificate_settings.c


_FIND: Final = Statement(
    sa.select(_s.private_key_export, _s.updated_at).where(given(_s.account_id))
)
_PUT: Final = Statement(insert_or_change(certificate_settings, certificate_settings.c.keys()))


_PATH: Final = "/v1/certificate-settings"


class UpdateCertificateSettings(RequestBody):
    """The settings to change."""

    private_key_export: bool | UnsetType | None = UNSET
    """False to forbid the export of private keys that were made here; null means true."""


class CertificateSettingsRecord(ResponseBody):
    """An account's settings of certificates."""

    private_key_export: bool
    """True if private keys that were made here may be exported, once each."""
    updated_at: RFC3339 | None
    """Null until the account changes a setting."""


def find_settings(tx: Connection, account_id: str) -> CertificateSettingsRecord:
    """Return the settings of an account; the defaults if it has changed none."""
    row = tx.row(_FIND, account_id=account_id)
    if row is None:
        return CertificateSettingsRecord(private_key_export=True, updated_at=None)
    return CertificateSettingsRecord(private_key_export=bool(row[0]), updated_at=rfc3339(row[1]))


class OneCertificateSettings(ResponseBody):
    """The body of an answer: an account's settings of certificates."""

    certificate_settings: CertificateSettingsRecord


def _authorize(ctx: RequestContext) -> str:
    """Return the caller's account; raise `AccessDenied` unless policies allow the action."""
    account_id = account_of(ctx)
    crn = Crn("certificate", ctx.settings.region, account_id, "certificate-settings", "default")
    ctx.authorize(str(crn))
    return account_id


@get(_PATH, opt={"action": "certificate:GetCertificateSettings"})
async def get_certificate_settings(ctx: Context) -> OneCertificateSettings:
    """Return the account's settings of certificates."""
    return OneCertificateSettings(await ctx.database.read(find_settings, _authorize(ctx)))


@patch(_PATH, opt={"action": "certificate:UpdateCertificateSettings"})
async def update_certificate_settings(
    data: JSONBody[UpdateCertificateSettings], ctx: Context
) -> Reply[OneCertificateSettings]:
    """Change the account's settings of certificates."""
    account_id = _authorize(ctx)

    def change(tx: Connection) -> CertificateSettingsRecord:
        if data.private_key_export is UNSET:
            return find_settings(tx, account_id)
        may_export, now = data.private_key_export is not False, ctx.clock()
        tx.execute(_PUT, account_id=account_id, private_key_export=may_export, updated_at=now)
        return CertificateSettingsRecord(may_export, rfc3339(now))

    return await ctx.commit(change, wrap=OneCertificateSettings)
