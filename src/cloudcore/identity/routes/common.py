"""Common parts of identity's routes: types of fields, authorized rows, and response bodies."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta

from cloudcore.errors import InvalidInput
from cloudcore.identity.names import HANDLE_PATTERN, NAME_PATTERN
from cloudcore.identity.rows.owned import Listed, Owned, OwnedRows, Owner
from cloudcore.resource_names import Crn, lower_ids
from cloudcore.web.answers import RecordAnswers
from cloudcore.web.caller_kinds import account_of
from cloudcore.web.context import RequestContext
from cloudcore.web.pagination import NamedPageQuery, PageQuery, read_page
from cloudcore.wire import ResponseBody

Name = Annotated[
    str, Meta(min_length=1, max_length=63, extra_json_schema={"pattern": NAME_PATTERN})
]
"""The name of a resource: unique in the account, unchangeable, and never a UUID."""
Handle = Annotated[
    str, Meta(min_length=2, max_length=32, extra_json_schema={"pattern": HANDLE_PATTERN})
]
"""The name of an account in image references; never changed, and never used for another account."""
Title = Annotated[str, Meta(min_length=1, max_length=100)]
Description = Annotated[str, Meta(max_length=1000)]
Document = dict[str, Any]
"""A policy document; see `cloudcore.iam.policy`."""
Reference = Annotated[str, Meta(min_length=1, max_length=700, description="UUID, name or CRN")]
Email = Annotated[str, Meta(min_length=3, max_length=254, extra_json_schema={"format": "email"})]
Status = Literal["active", "suspended"]


class PeopleQuery(PageQuery):
    """Parameters of a list of persons."""

    email: str | None = None
    """Only the person with this e-mail address."""

    def __post_init__(self) -> None:
        """Convert the address to lower case, as it is stored."""
        self.email = self.email and self.email.lower()


T = TypeVar("T", bound=Owned)
B = TypeVar("B", bound=ResponseBody)


async def authorized(ctx: RequestContext, rows: OwnedRows[T], found_id: str) -> T:
    """Return a row of the caller's account, if the caller may do the route's action on it.

    Raise `NotFound` if the account has no row with this id, `AccessDenied` if policies do not allow
    the route's action on it.
    """
    found = await ctx.database.read(rows.get, account_of(ctx), found_id)
    ctx.authorize(rows.crn_of(found))
    return found


def parse_crn(text: str, field: str) -> Crn:
    """Return the CRN in a request's `field`; raise `InvalidInput` if it is malformed."""
    try:
        return Crn.parse(lower_ids(text))
    except InvalidInput as error:
        words = f"{field}: {error.message}"
        raise InvalidInput(words, field=field, reason="malformed_crn") from None


class Answers(RecordAnswers[B]):
    """Builds response bodies with records of an owner."""

    async def page(
        self,
        ctx: RequestContext,
        rows: Listed[Any],
        owner: Owner,
        *of: object,
        query: type[PageQuery] = PageQuery,
        **more: object,
    ) -> ResponseBody:
        """Return the page of an owner's rows that a request selects.

        `of` and `more` are passed to `show` with each row. A `query` other than `PageQuery` has a
        field with the name of `rows.label`, which selects the row with that label.
        """
        asked = ctx.query(query)
        label = "" if query is PageQuery else getattr(asked, rows.label) or ""
        found, meta = await read_page(
            ctx, asked, rows.list, rows.count, owner, label, key=rows.sort_key
        )
        return self.many([self.show(*of, each, **more) for each in found], meta)

    async def page_of_account(self, ctx: RequestContext, rows: OwnedRows[Any]) -> ResponseBody:
        """Return the page of the account's rows that a request selects, or raise `AccessDenied`."""
        account_id = account_of(ctx)
        ctx.authorize(rows.crn(account_id, "*"))
        return await self.page(ctx, rows, account_id, query=NamedPageQuery)
