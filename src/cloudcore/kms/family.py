"""The family of keys: made and rotated in accounts, used to encrypt short values and data keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from cloudcore.family import Family
from cloudcore.kms.key import KEY
from cloudcore.metering.sku import HOURS_PER_MONTH, Sku

if TYPE_CHECKING:
    from litestar.handlers import HTTPRouteHandler

    from cloudcore.jobs.schedule import Scheduled
    from cloudcore.kms.needs import KmsNeeds
    from cloudcore.metering.sampling import Measure
    from cloudcore.ports import Offer, Opening
    from cloudcore.quotas.limits import Counted

_DELETION_SECONDS: Final = 900
_KEYS: Final = Sku("kms.keys", "Keys", "key-month", HOURS_PER_MONTH)
_REQUESTS: Final = Sku("kms.requests", "Requests of keys", "1000 requests", 1000)


async def _open(opening: Opening) -> KmsNeeds:
    from cloudcore.kms.needs import open_needs  # noqa: PLC0415 - SQLAlchemy

    return await open_needs(opening)


def _offers() -> Sequence[Offer]:
    from cloudcore.kms import needs  # noqa: PLC0415 - SQLAlchemy

    return needs.OFFERS


def _routes() -> Sequence[HTTPRouteHandler]:
    from cloudcore.kms.routes import HANDLERS  # noqa: PLC0415 - the web framework

    return HANDLERS


def _schedule(needs: KmsNeeds) -> Sequence[Scheduled]:
    from cloudcore.jobs.schedule import Scheduled  # noqa: PLC0415
    from cloudcore.kms.chores import delete_due_keys  # noqa: PLC0415 - SQLAlchemy

    chore = partial(delete_due_keys, needs)
    return (Scheduled("kms.due_deletions", _DELETION_SECONDS, chore),)


def _samples() -> Mapping[str, Measure]:
    from cloudcore.kms.rows import keys_by_account  # noqa: PLC0415 - SQLAlchemy

    return {_KEYS.name: keys_by_account}


def _uses() -> Sequence[Counted]:
    from cloudcore.kms.rows import KEY_ROWS  # noqa: PLC0415 - SQLAlchemy

    return (KEY_ROWS.counted,)


KMS: Final[Family[KmsNeeds]] = Family(
    name="kms",
    title="Keys",
    open=_open,
    uses=_uses,
    offers=_offers,
    routes=_routes,
    schedule=_schedule,
    skus=(_KEYS, _REQUESTS),
    samples=_samples,
    resources=(KEY,),
    told_changes={
        "kms:EnableKey": "kms.key.enabled",
        "kms:DisableKey": "kms.key.disabled",
        "kms:RotateKey": "kms.key.rotated",
        "kms:ScheduleKeyDeletion": "kms.key.deletion_scheduled",
        "kms:CancelKeyDeletion": "kms.key.deletion_cancelled",
        "kms:DeleteKey": "kms.key.deleted",
    },
    event_words={
        "kms.key.deletion_scheduled": "The deletion of a key was scheduled",
        "kms.key.deletion_cancelled": "The deletion of a key was cancelled",
    },
)
