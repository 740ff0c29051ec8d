"""The family of keys: made and rotated in accounts, used to encrypt short values and data keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cloudcore.family import Family
from cloudcore.iam.vocabulary import ResourceKind

if TYPE_CHECKING:
    from litestar.types import ControllerRouterHandler
    from sqlalchemy import Table

    from cloudcore.clock import Clock
    from cloudcore.db.base import Database
    from cloudcore.iam.audit import Auditor
    from cloudcore.jobs.schedule import Scheduled
    from cloudcore.kms.making import KeyMaker
    from cloudcore.kms.vault import Vault

_DELETION_SECONDS: Final = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class KmsNeeds:
    """The dependencies of the routes and the timer of keys."""

    database: Database
    clock: Clock
    new_id: Callable[[], str]
    maker: KeyMaker
    vault: Vault
    auditor: Auditor | None
    """Records deletions that are due; None: nothing is recorded."""


def _routes() -> Sequence[ControllerRouterHandler]:
    from cloudcore.kms import key_routes, use_routes  # noqa: PLC0415 - the web framework

    return (*key_routes.HANDLERS, *use_routes.HANDLERS)


def _schedule(needs: KmsNeeds) -> Sequence[Scheduled]:
    from cloudcore.jobs.schedule import Scheduled  # noqa: PLC0415
    from cloudcore.kms.deletion import delete_due_keys  # noqa: PLC0415 - SQLAlchemy

    async def delete() -> None:
        await delete_due_keys(needs)

    return (Scheduled("kms.due_deletions", _DELETION_SECONDS, delete),)


def _tables() -> Sequence[Table]:
    from cloudcore.kms import tables  # noqa: PLC0415 - SQLAlchemy

    return tables.TABLES


KMS: Final[Family[KmsNeeds]] = Family(
    name="kms",
    routes=_routes,
    schedule=_schedule,
    tables=_tables,
    resource_kinds=(
        ResourceKind(
            crn="crn:kms:<region>:<account>:key/<name>",
            actions=(
                "kms:CancelKeyDeletion",
                "kms:CreateKey",
                "kms:DescribeKeys",
                "kms:DisableKey",
                "kms:EnableKey",
                "kms:RotateKey",
                "kms:ScheduleKeyDeletion",
                "kms:UpdateKey",
                "kms:UseKey",
            ),
            summaries={"kms:UseKey": "Encrypt and decrypt with a key, or let a service use it."},
        ),
    ),
    quotas=("keys",),
)
