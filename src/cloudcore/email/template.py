"""What an email template is: subject and body of messages, with places for variables."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, field

from cloudcore.resources.record import Record, fixed, given, own
from cloudcore.resources.resource import Filter, Resource

MAX_SOURCE: Final = 100_000
"""Most characters of a body's source."""


class Template(Record, frozen=True, kw_only=True):
    """The subject and the body of messages, with places for variables."""

    name: Annotated[
        str,
        Meta(min_length=1, max_length=63),
        fixed("1 to 63 of a-z 0-9 . _ -; fixed", heading="NAME"),
    ]
    description: Annotated[str, Meta(max_length=1000), given('for persons; "" takes it away')] = ""
    subject: Annotated[
        str,
        Meta(min_length=1, max_length=998),
        given("subject of messages, with variables as {{ name }}", heading="SUBJECT"),
    ]
    html: Annotated[
        Annotated[str, Meta(min_length=1, max_length=MAX_SOURCE)] | None,
        given("body of messages as HTML, with variables, which are escaped", is_long=True),
    ] = None
    """The body as HTML; the values of variables are escaped in it."""
    text: Annotated[
        Annotated[str, Meta(min_length=1, max_length=MAX_SOURCE)] | None,
        given("body of messages as text, with variables", is_long=True),
    ] = None
    """The body as text. A template has one of both at least."""
    variables: Annotated[list[str], own(heading="VARIABLES")] = field(default_factory=list)
    """The names of the variables that subject and bodies use, sorted."""
    tags: Annotated[dict[str, str], given("a tag of the email template")] = field(
        default_factory=dict
    )


TEMPLATE: Final = Resource(
    record=Template,
    service="email",
    one="template",
    many="templates",
    words="email template",
    table="email_templates",
    methods=("create", "list", "get", "update"),
    actions={"delete": "DeleteTemplate"},
    more_actions=("PreviewTemplate",),
    filters=(Filter("name"),),
    sample=lambda number: {
        "name": f"template-{number}",
        "subject": "Hello {{ name }}",
        "text": "Hello {{ name }}.",
    },
)
