"""Timers: renew certificates in time, and record which have expired or will expire soon."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from msgspec import structs

from cloudcore.certificate import rows
from cloudcore.certificate.certificate import EXPIRED, EXPIRING, WARNED_DAYS, CertificateMissing
from cloudcore.certificate.needs import CertificateNeeds
from cloudcore.certificate.rows import ROWS
from cloudcore.certificate.workflow import WORK
from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.events import Events

EVERY_SECONDS: Final = 300
LISTS_SECONDS: Final = 3600
_DAY: Final = 24 * 3600 * MICROSECONDS
_PAGE: Final = 100


async def renew_due(needs: CertificateNeeds) -> None:
    """Wake the jobs of certificates whose renewal is due (`Certificate.renew_at`)."""
    now, after = needs.clock(), -1
    while found := await needs.database.read(rows.list_due_renewals, now, after, _PAGE):
        for account_id, certificate_id, _ in found:
            await needs.database.write(_wake, account_id, certificate_id, now)
        after = found[-1][2]


async def record_expiries(needs: CertificateNeeds) -> None:
    """Record that active certificates have expired; warn about uploads that will expire soon.

    If several warnings are due at once, only the most urgent one is sent.
    """
    now = needs.clock()
    while found := await needs.database.read(rows.list_over, now, _PAGE):
        for place in found:
            await needs.database.write(_note_expired, *place, needs.events, now)
    for days in sorted(WARNED_DAYS):
        until = now + days * _DAY
        while found := await needs.database.read(rows.list_ending, now, days, until, _PAGE):
            for place in found:
                await needs.database.write(_note_ending, *place, days, needs.events, now)


def _wake(tx: Connection, account_id: str, certificate_id: str, now: int) -> None:
    found = ROWS.find(tx, account_id, certificate_id)
    if found is not None:
        WORK.wake(tx, found, now, hastens=False)


def _note_expired(
    tx: Connection, account_id: str, certificate_id: str, events: Events, now: int
) -> None:
    with suppress(CertificateMissing):
        current = ROWS.lock(tx, account_id, certificate_id)
        if current.status == "active" and current.status_at(now) == "expired":
            changed = ROWS.save(tx, structs.replace(current, status="expired", updated_at=now))
            events.emit(tx, account_id, EXPIRED, [changed.event_data], now)


def _note_ending(
    tx: Connection, account_id: str, certificate_id: str, days: int, events: Events, now: int
) -> None:
    """Warn that an uploaded certificate expires within `days`, unless this was done before."""
    with suppress(CertificateMissing):
        current = ROWS.lock(tx, account_id, certificate_id)
        is_told = current.warned_days is not None and current.warned_days <= days
        if current.status_at(now) == "active" and not is_told:
            changed = ROWS.save(tx, structs.replace(current, warned_days=days))
            events.emit(tx, account_id, EXPIRING, [changed.event_data], now)
