"""Email: sending identities, messages with each recipient's status, and template previews."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec
from litestar import post

from cloudcore.email import resources
from cloudcore.email.resources import SENDING_IDENTITY
from registry.console.assets import SHOWING_MAIL
from registry.console.control_plane import Refused
from registry.console.form_refusals import NO_REFUSAL, FormRefusal, refusal_of
from registry.console.nouns.handlers import api_of, show_one
from registry.console.nouns.noun_pages import Column, CustomMethod, RecordJson
from registry.console.nouns.resources import deletion, noun_of
from registry.console.page_request import InjectedPage, PageRequest, PageResponse

IDENTITY: Final = replace(
    noun_of(SENDING_IDENTITY),
    methods=(
        CustomMethod(
            "verify",
            "Verify",
            "email:VerifyIdentity",
            "Its record is being looked for, or a new link is on its way. Load the page again in a"
            " moment.",
            label="Verify it now",
            can=lambda identity: identity["kind"] == "domain" or identity["status"] != "verified",
        ),
        deletion(
            SENDING_IDENTITY.noun,
            SENDING_IDENTITY.action("delete"),
            "Mail from it is refused from then on. A new one has another key.",
        ),
    ),
    parts="noun_identity.html",
)


_OF: Final = noun_of(resources.MESSAGE)
_FROM: Final = Column("From", "from")
MESSAGE: Final = replace(
    _OF,
    label="subject",
    columns=(_FROM, *(each for each in _OF.columns if each.field != "subject")),
    details=(
        _FROM,
        *(each for each in _OF.details if each.field != "subject"),
        Column("Template", "template", "reference"),
    ),
    parts="noun_message.html",
)


_FIELD: Final = "variables"
_NO_OBJECT: Final = FormRefusal(400, "Variables: a JSON object.", _FIELD)
_HEAD: Final = (
    "<!doctype html><meta http-equiv=Content-Security-Policy"
    " content=\"default-src 'none'; style-src 'unsafe-inline'\">"
)
"""Beginning of the frame's document; its policy keeps the mail from loading anything."""


TEMPLATE: Final = replace(
    noun_of(resources.TEMPLATE),
    methods=(
        deletion(
            resources.TEMPLATE.noun,
            resources.TEMPLATE.action("delete"),
            "Messages that were accepted with it are sent.",
        ),
    ),
    parts="noun_template.html",
)


@post(f"{TEMPLATE.path_of_one}/preview")
async def preview_template(page: InjectedPage) -> PageResponse:
    """Show a message rendered with variables, which are a JSON object."""
    preview, refusal = None, NO_REFUSAL
    try:
        variables = msgspec.json.decode(page.form.get(_FIELD) or "{}", type=dict[str, Any])
        answer = await page.api.post(f"{api_of(page, TEMPLATE)}/preview", {_FIELD: variables})
        preview = answer["preview"]
    except msgspec.DecodeError:
        refusal = _NO_OBJECT
    except Refused as error:
        if error.status != _NO_OBJECT.status:
            raise
        refusal = refusal_of(error)._replace(field=_FIELD)

    async def more(_page: PageRequest, _record: RecordJson) -> Mapping[str, Any]:
        headers = {"content-security-policy": SHOWING_MAIL}
        shown = {"preview": preview, "mail_head": _HEAD}
        return {**shown, "panel_fields": (_FIELD,), "headers": headers}

    return await show_one(page, replace(TEMPLATE, more=more), refusal)
