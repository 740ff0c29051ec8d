"""Pages of records that an owner has."""

from __future__ import annotations

from typing import Any, TypeVar

from cloudcore.identity.routes.common import PeopleQuery
from cloudcore.identity.rows.owned import Listed, OwnedRows, Owner
from cloudcore.web.answers import RecordAnswers
from cloudcore.web.caller_kinds import account_of
from cloudcore.web.context import RequestContext
from cloudcore.web.pagination import NamedPageQuery, PageQuery, read_page
from cloudcore.wire import ResponseBody

B = TypeVar("B", bound=ResponseBody)


class Answers(RecordAnswers[B]):
    """Answers with one record, or a page of the records, of an account, organization or person."""

    async def page(
        self,
        ctx: RequestContext,
        rows: Listed[Any],
        owner: Owner,
        *of: object,
        query: type[PageQuery] = PageQuery,
    ) -> ResponseBody:
        """Return the page of an owner's rows that a request asks for; `show` takes `of` too."""
        asked = ctx.query(query)
        label = asked.name if isinstance(asked, NamedPageQuery) else None
        label = asked.address if isinstance(asked, PeopleQuery) else label
        found, meta = await read_page(
            ctx, asked, rows.list, rows.count, owner, label or "", key=rows.sort_key
        )
        return self.many([self.show(*of, each) for each in found], meta)

    async def page_of_account(self, ctx: RequestContext, rows: OwnedRows[Any]) -> ResponseBody:
        """Return the page of the account's rows that a request asks for, if policies allow it."""
        account_id = account_of(ctx)
        ctx.authorize(rows.crn(account_id, "*"))
        return await self.page(ctx, rows, account_id, query=NamedPageQuery)
