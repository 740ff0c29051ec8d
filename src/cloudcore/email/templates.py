"""``/v1/templates``: standard methods of email templates, their rendering and preview."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from jinja2 import TemplateError, TemplateSyntaxError, meta
from litestar import delete, post
from litestar.params import FromPath, JSONBody
from msgspec import UNSET, Struct, UnsetType, field, structs

from cloudcore.email import template_language as language
from cloudcore.email.resources import TEMPLATE, Template
from cloudcore.errors import InvalidInput, NotFound, invalid_field
from cloudcore.resources.methods import Methods
from cloudcore.resources.rows import Rows
from cloudcore.threads import DOCUMENTS
from cloudcore.web.app import Context
from cloudcore.web.caller_kinds import account_of
from cloudcore.wire import RequestBody, ResponseBody, or_absent

MAX_SUBJECT: Final = 998
"""The most characters of a rendered subject: those of a line (RFC 5322 §2.1.1)."""
MAX_RENDERED: Final = 1 << 20
"""The most characters of a rendered body."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_FAILURES: Final = (
    TemplateError,
    ArithmeticError,
    AssertionError,  # of Jinja2's filter truncate
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""Exceptions that filters and operators raise for unsuitable values."""
_HTML: Final = language.language(is_html=True)
_TEXT: Final = language.language(is_html=False)


class Rendered(Struct, frozen=True):
    """The rendered parts of a message."""

    subject: str
    html: str | None
    text: str | None


def variables_of(template: Template) -> list[str]:
    """Return the sorted names of a template's variables.

    Raise `InvalidInput`, with the line and the reason, if the subject or a body has a syntax error.
    """
    found: set[str] = set()
    for part in ("subject", "html", "text"):
        source = getattr(template, part)
        if source is None:
            continue
        of = _HTML if part == "html" else _TEXT
        try:
            tree = language.read(of, source)
            found |= meta.find_undeclared_variables(tree)
            of.compile(tree)
        except TemplateSyntaxError as error:
            raise _malformed(part, error.lineno, error.message or "") from None
        except (SyntaxError, RecursionError, language.Missing) as error:
            # In the Python code of Jinja2, or in a condition of constants, which it evaluates.
            raise _malformed(part, 1, str(error)) from None
    return sorted(found)


def render(template: Template, variables: Mapping[str, Any]) -> Rendered:
    """Render a template with these variables, which are JSON values.

    Raise `InvalidInput` if a variable is missing (the error's `params` name it) or unusable, the
    subject is empty or has a line break, or the result is too long or takes too long to render.
    """
    subject = _rendered("subject", template.subject, variables, MAX_SUBJECT)
    if _CONTROL.search(subject):
        words = "subject: with these variables it has a line break or another control character"
        raise InvalidInput(words, field="subject", reason="malformed")
    if not subject.strip():
        words = "subject: with these variables it is empty"
        raise InvalidInput(words, field="subject", reason="out_of_range")
    html, text = (
        None if source is None else _rendered(part, source, variables, MAX_RENDERED)
        for part, source in (("html", template.html), ("text", template.text))
    )
    return Rendered(subject, html, text)


def _rendered(part: str, source: str, variables: Mapping[str, Any], most: int) -> str:
    of = _HTML if part == "html" else _TEXT
    pieces, left = [], most
    try:
        made = of.from_string(language.counting(language.read(of, source)))
        for piece in made.generate({**variables, **language.counter_variables()}):
            left -= len(piece)
            if left < 0:
                words = f"{part}: with these variables it has more than {most} characters"
                raise InvalidInput(words, field=part, reason="out_of_range")
            pieces.append(piece)
    except language.Missing as error:
        name = error.name
        words = f"variables: the {part} needs {name}, which is not there"
        raise InvalidInput(words, field="variables", reason="missing", variable=name) from None
    except language.TooMuch as error:
        raise invalid_field(part, str(error), "out_of_range") from None
    except _FAILURES as error:
        words = f"{part}: with these variables it fails: {error}"
        raise InvalidInput(words, field=part, reason="malformed") from None
    return "".join(pieces)


def _malformed(part: str, line: int, words: str) -> InvalidInput:
    return InvalidInput(f"{part}: line {line}: {words}", field=part, reason="malformed", line=line)


ROWS: Final = Rows(TEMPLATE)


def _check(new: Template, old: Template | None, _now: int) -> Template:
    """Refuse a template without a body or with a syntax error; set the list of its variables."""
    if new.html is None and new.text is None:
        raise invalid_field("text", "needed, or html", "missing")
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
    """The variables to render a template with."""

    variables: dict[str, Any] = field(default_factory=dict)
    """Variables by name; any values of JSON."""


class TemplatePreview(ResponseBody):
    """The parts of a message, rendered from a template."""

    subject: str
    html: str | UnsetType = UNSET
    """Absent if the template has none."""
    text: str | UnsetType = UNSET
    """Absent if the template has none."""


class OneTemplatePreview(ResponseBody):
    """The body of an answer with the preview of a template."""

    preview: TemplatePreview


@post(TEMPLATE.path_of_one + "/preview", status_code=200, opt={"action": "email:PreviewTemplate"})
async def preview_template(
    template_id: FromPath[str], data: JSONBody[PreviewTemplate], ctx: Context
) -> OneTemplatePreview:
    """Render an email template with these variables; nothing is sent or kept.

    If a variable is missing, the error names it.
    """
    found = await TEMPLATES.authorized(ctx, template_id)
    rendered = await DOCUMENTS.run(found.account_id, render, found, data.variables)
    return OneTemplatePreview(
        preview=TemplatePreview(
            subject=rendered.subject,
            html=or_absent(rendered.html),
            text=or_absent(rendered.text),
        )
    )


@delete(
    TEMPLATE.path_of_one,
    status_code=204,
    opt={"action": TEMPLATE.action("delete"), "malformed_id": 400},
)
async def delete_template(template_id: FromPath[str], ctx: Context) -> None:
    """Delete an email template. It is a success if it does not exist.

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
