"""Event rules, which send events of the account's resources to topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from litestar import post

from registry.console.addresses import SETTINGS
from registry.console.form_refusals import NO_REFUSAL, FormPage, FormRefusal, WrongInput
from registry.console.page_request import InjectedPage, PageRequest, PageResponse

_PATH: Final = f"{SETTINGS}/events"
_API: Final = "/v1/event-rules"


async def _page(page: PageRequest, refusal: FormRefusal = NO_REFUSAL) -> PageResponse:
    found = await page.api.get(_API, marker=page.marker, limit=50)
    page.want_rights_on(*(rule["crn"] for rule in found["event_rules"]))
    families = page.console.event_types
    described = {every: f"{title}: everything" for every, (title, _) in families.items()}
    for _, types in families.values():
        described |= types
    return page.show(
        "event_rules.html",
        refusal.status,
        rules=found["event_rules"],
        meta=found["meta"],
        families=families,
        descriptions=described,
        refusal=refusal.text,
    )


_LIST: Final = FormPage(_PATH, _page)
list_rules = _LIST.get()


@_LIST.form()
async def create_rule(page: InjectedPage) -> PageResponse:
    """Create a rule from a form."""
    body = {
        "topic": page.text("topic"),
        "event_types": chosen_types(page.console.event_types, page.form),
        "repository_prefix": page.text("repository_prefix"),
    }
    if not body["event_types"]:
        raise WrongInput("event_types", "Choose the events to send to the topic.")
    await page.api.post(_API, body)
    return page.go(_PATH, "The rule was created.")


@post(f"{_PATH}/{{rule:str}}/delete")
async def delete_rule(page: InjectedPage) -> PageResponse:
    """Delete a rule."""
    await page.api.change("DELETE", page.fill(f"{_API}/{{rule}}"))
    return page.go(_PATH, "The rule was deleted.")


def chosen_types(
    event_types: Mapping[str, tuple[str, Mapping[str, str]]], form: Mapping[str, str]
) -> list[str]:
    """Return the event types checked in a form; for a family checked as a whole, only ``FAMILY.*``.

    `event_types` is `ConsoleApp.event_types`.
    """
    return [
        each
        for every, (_, types) in event_types.items()
        for each in ([every] if every in form else [each for each in types if each in form])
    ]
