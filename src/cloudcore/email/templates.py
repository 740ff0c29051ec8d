"""``/v1/templates``: the standard methods of email templates, their deletion, and a preview."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from litestar import delete, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody
from msgspec import UNSET, UnsetType, field, structs

from cloudcore.email.template import TEMPLATE, Template
from cloudcore.email.template_rendering import Rendered, render, variables_of
from cloudcore.errors import InvalidInput, NotFound
from cloudcore.resources.methods import Methods
from cloudcore.resources.routes import standard_routes
from cloudcore.resources.rows import Rows
from cloudcore.threads import DOCUMENTS
from cloudcore.web.callers import account_of
from cloudcore.web.context import RequestContext
from cloudcore.wire import RequestBody, ResponseBody, or_absent

ROWS: Final = Rows(TEMPLATE)


def _check(new: Template, old: Template | None, _now: int) -> Template:
    """Refuse what cannot be rendered; find the variables."""
    if new.html is None and new.text is None:
        raise InvalidInput("text: needed, or html", field="text", reason="missing")
    sources = (new.subject, new.html, new.text)
    if old is not None and sources == (old.subject, old.html, old.text):
        return new
    return structs.replace(new, variables=variables_of(new))


TEMPLATES: Final = Methods(
    ROWS,
    check=_check,
    docs={
        "create": "Create an email template. An account has at most 1,000.\n\nIts subject and"
        " bodies are in a part of Jinja2: values, conditions, loops and filters. What is none is"
        " refused with its line.",
    },
)


class PreviewTemplate(RequestBody):
    """What the variables are."""

    variables: dict[str, Any] = field(default_factory=dict)
    """By name; any values of JSON."""


class TemplatePreview(ResponseBody):
    """What a message would say."""

    subject: str
    html: str | UnsetType = UNSET
    """Absent if the template has none."""
    text: str | UnsetType = UNSET
    """Absent if the template has none."""


class OneTemplatePreview(ResponseBody):
    """What a message would say, wrapped."""

    preview: TemplatePreview


@post(TEMPLATE.path_of_one + "/preview", status_code=200, opt={"action": "email:PreviewTemplate"})
async def preview_template(
    template_id: FromPath[str],
    data: JSONBody[PreviewTemplate],
    ctx: NamedDependency[RequestContext],
) -> OneTemplatePreview:
    """Render an email template with these variables; nothing is sent or kept.

    A variable that is missing is refused by its name.
    """
    found = await TEMPLATES.authorized(ctx, template_id)
    rendered = await DOCUMENTS.run(found.account_id, render, found, data.variables)
    return OneTemplatePreview(preview=_preview(rendered))


def _preview(of: Rendered) -> TemplatePreview:
    return TemplatePreview(subject=of.subject, html=or_absent(of.html), text=or_absent(of.text))


@delete(
    TEMPLATE.path_of_one,
    status_code=204,
    opt={"action": TEMPLATE.action("delete"), "malformed_id": 400},
)
async def delete_template(template_id: FromPath[str], ctx: NamedDependency[RequestContext]) -> None:
    """Delete an email template. One that does not exist is deleted already, which is a success.

    Messages that were accepted with it are sent as they were rendered then.
    """
    account_id, region = account_of(ctx), ctx.settings.region
    try:
        found = await ctx.database.read(ROWS.get, account_id, region, template_id)
    except NotFound:
        ctx.authorize(TEMPLATE.crn(region, account_id, template_id))
        return
    ctx.authorize(TEMPLATE.crn_of(found))
    with suppress(NotFound):  # it was deleted meanwhile
        await ctx.database.write(TEMPLATES.remove, found, ctx.clock())


HANDLERS: Final = (*standard_routes(TEMPLATES), delete_template, preview_template)
