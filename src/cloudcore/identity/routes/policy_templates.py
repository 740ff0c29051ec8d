"""``/v1/policy-templates``: ready-made policies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from litestar import get
from litestar.di import NamedDependency
from msgspec import Meta

from cloudcore.iam.templates import find_template
from cloudcore.web.callers import account_of
from cloudcore.web.context import RequestContext
from cloudcore.wire import RequestBody, ResponseBody

TemplateName = Annotated[str, Meta(min_length=1, max_length=63)]
ResourceNames = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=300)]], Meta(min_length=1, max_length=20)
]
"""Names of resources; one that ends in `*` stands for all that begin so."""


class FilledTemplate(RequestBody):
    """A template, and the resources that it shall be for."""

    name: TemplateName
    names: ResourceNames


class TemplateQuery(msgspec.Struct):
    """What to fill templates with."""

    names: Annotated[str, Meta(min_length=1, max_length=5200)] = "*"
    """Names of resources, with commas in between; one that ends in `*` is for all that begin so."""


class PolicyTemplateRecord(ResponseBody):
    """A ready-made policy."""

    name: str
    family: str
    summary: str
    document: dict[str, Any]
    """The policy for the given names."""


class ManyPolicyTemplates(ResponseBody):
    """All ready-made policies."""

    policy_templates: Sequence[PolicyTemplateRecord]


def document_of(ctx: RequestContext, template: str, names: Sequence[str]) -> dict[str, Any]:
    """Return the document of a template for resources of the caller's account.

    Raises:
        InvalidInput: there is no such template, or it does not take these names.

    """
    found = find_template(ctx.vocabulary.templates, template)
    return found.document(names, ctx.settings.region, account_of(ctx))


@get("/v1/policy-templates", opt={"action": None, "query": TemplateQuery, "statuses": (403,)})
async def list_policy_templates(ctx: NamedDependency[RequestContext]) -> ManyPolicyTemplates:
    """List the ready-made policies, filled with names of resources."""
    names = ctx.query(TemplateQuery).names.split(",")
    account_id = account_of(ctx)
    return ManyPolicyTemplates(
        policy_templates=[
            PolicyTemplateRecord(
                name=each.name,
                family=each.family,
                summary=each.summary,
                document=each.document(names, ctx.settings.region, account_id),
            )
            for each in ctx.vocabulary.templates
        ]
    )


HANDLERS: Final = (list_policy_templates,)
