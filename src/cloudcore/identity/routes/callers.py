"""Who a route of identity is for: programs and roles act in an account, persons as themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, TypeVarTuple

from msgspec import UNSET, Struct, structs

from cloudcore.db.base import Connection
from cloudcore.errors import AccessDenied
from cloudcore.iam.principal import Principal, PrincipalKind
from cloudcore.identity.names import iam_crn
from cloudcore.uuids import Uuid
from cloudcore.web.context import Context
from cloudcore.web.pagination import Page, PageMeta
from cloudcore.wire import Answer

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class NamedThing(Answer):
    """A reference to something else."""

    id: Uuid
    crn: str
    name: str


def account_of(ctx: Context) -> str:
    """Return the id of the account the caller acts in.

    Raises:
        AccessDenied: a person does so only in a role (I11).

    """
    if ctx.caller is None or ctx.caller.account_id is None:
        raise AccessDenied("a person calls account services in an assumed role")
    return ctx.caller.account_id


def person_of(ctx: Context) -> Principal:
    """Return the caller, who must be a person.

    Raises:
        AccessDenied: it is a service account or a role session (part 5, item 11).

    """
    if ctx.caller is None or ctx.caller.kind is not PrincipalKind.USER:
        raise AccessDenied("this needs a person")
    return ctx.caller


def person_crn(organization_id: str, user_id: str) -> str:
    """Return the CRN of a person, whose personal organization this is."""
    return iam_crn(organization_id, "user", user_id)


def changes_of(data: Struct) -> dict[str, object]:
    """Return the fields that a PATCH gives."""
    return {name: value for name, value in structs.asdict(data).items() if value is not UNSET}


async def read_page(
    ctx: Context,
    query: Page,
    rows: Callable[[Connection, *Ts, str, int], Sequence[T]],
    count: Callable[[Connection, *Ts], int],
    *within: *Ts,
    key: Callable[[T], str],
) -> tuple[Sequence[T], PageMeta]:
    """Return the page of a list that `query` asks for; `key` is what the list is sorted by."""
    pager = ctx.pager(query, rows.__name__, *map(str, within))
    (after,) = pager.position or ("",)

    def read(tx: Connection) -> tuple[Sequence[T], int]:
        return rows(tx, *within, after, pager.wanted), count(tx, *within)

    found, total = await ctx.database.read(read)
    return pager.cut(found, total, lambda row: (key(row),))
