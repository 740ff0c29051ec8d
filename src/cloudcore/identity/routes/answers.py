"""Pages of records that an owner has."""

from __future__ import annotations

from typing import Any, TypeVar

from cloudcore.identity.rows.owned import Listed, OwnedRows, Owner
from cloudcore.web.answers import RecordAnswers
from cloudcore.web.caller_kinds import account_of
from cloudcore.web.context import RequestContext
from cloudcore.web.pagination import NamedPageQuery, PageQuery, read_page
from cloudcore.wire import ResponseBody

B = TypeVar("B", bound=ResponseBody)


class Answers(RecordAnswers[B]):
    """Answers with records that an owner has."""

    async def page(
        self,
        ctx: RequestContext,
        rows: Listed[Any],
        owner: Owner,
        *of: object,
        query: type[PageQuery] = PageQuery,
        **more: object,
    ) -> ResponseBody:
        """Return the page of an owner's rows that a request asks for.

        `show` takes `of` and `more` too. The field of `query` called after the rows' label selects
        the row that has it.
        """
        asked = ctx.query(query)
        label: str = getattr(asked, rows.label, None) or ""
        found, meta = await read_page(
            ctx, asked, rows.list, rows.count, owner, label, key=rows.sort_key
        )
        return self.many([self.show(*of, each, **more) for each in found], meta)

    async def page_of_account(self, ctx: RequestContext, rows: OwnedRows[Any]) -> ResponseBody:
        """Return the page of the account's rows that a request asks for, if policies allow it."""
        account_id = account_of(ctx)
        ctx.authorize(rows.crn(account_id, "*"))
        return await self.page(ctx, rows, account_id, query=NamedPageQuery)
