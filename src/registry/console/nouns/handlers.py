"""Handlers of the pages of any noun: list, create, show and change resources; custom methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from litestar import post
from litestar.handlers import HTTPRouteHandler

from registry.console.addresses import address_of
from registry.console.control_plane import Refused
from registry.console.form_refusals import (
    NO_REFUSAL,
    FormPage,
    FormRefusal,
    WrongInput,
    refusal_of,
)
from registry.console.nouns.noun_pages import CustomMethod, NounPages, RecordJson, read_inputs
from registry.console.page_request import InjectedPage, PageRequest, PageResponse

_CONFLICT: Final = 409
"""Status for a method that the resource's state forbids; the resource's page shows why."""


def noun_handlers(noun: NounPages) -> Sequence[HTTPRouteHandler]:
    """Return the route handlers of a noun's pages."""
    of_all, of_one = list_page(noun), one_page(noun)

    @of_all.form()
    async def create(page: InjectedPage) -> PageResponse:
        body = read_inputs(noun.creates, page.form)
        return await send_new(page, noun, noun.api, body, noun.created)

    @of_one.form()
    async def change(page: InjectedPage) -> PageResponse:
        changes = read_inputs(noun.updates, page.form, is_change=True)
        await page.api.change("PATCH", api_of(page, noun), changes)
        return page.go(path_of(page, noun), noun.updated)

    return (
        of_all.get(),
        of_one.get(),
        *((create,) if noun.creates else ()),
        *((change,) if noun.updates else ()),
        *(_handler_of(noun, method) for method in noun.methods),
    )


def _handler_of(noun: NounPages, method: CustomMethod) -> HTTPRouteHandler:
    @post(f"{noun.path_of_one}/{method.verb}")
    async def do(page: InjectedPage) -> PageResponse:
        if method.asks and "confirmed" not in page.form:
            return await _ask(page, noun, method)
        return await _do(page, noun, method)

    return do


async def show_list(
    page: PageRequest, noun: NounPages, refusal: FormRefusal = NO_REFUSAL, **more: object
) -> PageResponse:
    """Return the page with a noun's list; `refusal` is about the form for a new resource.

    `more` are further values for the template.
    """
    asked = {each.field: page.query.get(each.field) for each in noun.filters}
    wrong = NO_REFUSAL
    try:
        found = await page.api.get(noun.api, **asked, marker=page.marker, limit=50)
    except Refused as error:
        if error.status != 400 or not any(asked.values()):
            raise
        wrong = refusal_of(error)
        found = {noun.many: [], "meta": {"total": 0, "has_more": False}}
    order = page.query.get("sort", "")
    return page.show(
        "nouns.html",
        max(refusal.status, wrong.status),
        noun=noun,
        rows=_sorted(found[noun.many], order),
        meta=found["meta"],
        address=address_of({**asked, "sort": order}),
        asked=asked,
        refusal=refusal,
        wrong=wrong,
        **{**noun.shows, **await noun.more_of_all(page), **more},
    )


def _sorted(rows: Sequence[RecordJson], order: str) -> Sequence[RecordJson]:
    """Sort rows by a field, descending after a dash in `order`; rows without a value go last."""
    field = order.removeprefix("-")
    known = [each for each in rows if isinstance(each.get(field), str | int)]
    others = [each for each in rows if each not in known]
    known.sort(key=lambda each: _sort_key(each[field]), reverse=order.startswith("-"))
    return [*known, *others]


def _sort_key(value: str | int) -> tuple[int, str]:
    return (value, "") if isinstance(value, int) else (0, value.lower())


async def send_new(
    page: PageRequest, noun: NounPages, api: str, body: Mapping[str, object], said: str
) -> PageResponse:
    """Create a resource with this body, and redirect to its page with the notice `said`."""
    made = await page.api.post(api, body, once=page.once)
    return page.go(f"{noun.path}/{made[noun.one][noun.key]}", said)


async def show_one(
    page: PageRequest, noun: NounPages, refusal: FormRefusal = NO_REFUSAL
) -> PageResponse:
    """Return the page of one resource; `refusal` is about a form on this page."""
    record = await read_one(page, noun)
    crn = record_crn(page, noun, record)
    page.want_rights_on(*noun.rights_on(crn))
    more = {**noun.shows, **await noun.more(page, record)}
    headers = more.pop("headers", {})
    shown = page.show(
        "noun.html",
        noun=noun,
        record=record,
        crn=crn,
        base=path_of(page, noun),
        refusal=refusal,
        **more,
    )
    shown.headers.update(headers)
    return shown


async def _ask(
    page: PageRequest, noun: NounPages, method: CustomMethod, refusal: FormRefusal = NO_REFUSAL
) -> PageResponse:
    record = await read_one(page, noun)
    await page.require(method.action, record_crn(page, noun, record))
    more = await noun.more(page, record) if method.inputs else {}
    return page.show(
        "noun_question.html",
        noun=noun,
        method=method,
        record=record,
        base=path_of(page, noun),
        refusal=refusal,
        **{**noun.shows, **more},
    )


async def _do(page: PageRequest, noun: NounPages, method: CustomMethod) -> PageResponse:
    api, there = api_of(page, noun), path_of(page, noun)
    try:
        given = read_inputs(method.inputs, page.form)
        if method.is_deletion:
            answer = await page.api.change("DELETE", api, **given)
        else:
            path = f"{api}/{method.path or method.verb}"
            answer = await page.api.post(path, once=page.once, **given)
    except WrongInput as wrong:
        return await _ask(page, noun, method, wrong.refusal)
    except Refused as error:
        if method.inputs and error.status == 400:
            return await _ask(page, noun, method, refusal_of(error))
        if error.status != _CONFLICT:
            raise
        return await show_one(page, noun, refusal_of(error))
    if method.answered is not None:
        return method.answered(page, answer, there)
    return page.go(noun.path if method.is_deletion and not method.stays else there, method.said)


def list_page(noun: NounPages) -> FormPage:
    """Return the form page of a noun's list."""
    return FormPage(noun.path, lambda page, refusal: show_list(page, noun, refusal))


def one_page(noun: NounPages) -> FormPage:
    """Return the form page of one resource."""
    return FormPage(noun.path_of_one, lambda page, refusal: show_one(page, noun, refusal))


async def read_one(page: PageRequest, noun: NounPages) -> RecordJson:
    """Read the record that the path names from ``/v1``."""
    found: RecordJson = (await page.api.get(api_of(page, noun)))[noun.one]
    return found


def record_crn(page: PageRequest, noun: NounPages, record: Mapping[str, Any]) -> str:
    """Return a resource's CRN, to ask for rights; if the record has none, made from the id."""
    if record.get("crn"):
        return str(record["crn"])
    region = page.console.settings.region
    return f"crn:{noun.service}:{region}:{page.acting.account_id}:{noun.type}/{record['id']}"


def path_of(page: PageRequest, noun: NounPages) -> str:
    """Return the path of the page of the resource in this request."""
    return f"{noun.path}/{page.parameters[noun.one]}"


def api_of(page: PageRequest, noun: NounPages) -> str:
    """Return the path on ``/v1`` of the resource in this request."""
    return f"{noun.api}/{page.parameters[noun.one]}"
