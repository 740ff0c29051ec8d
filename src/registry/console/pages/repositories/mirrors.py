"""Mirrors: the rules of the pull-through cache, with their statistics and faults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from litestar import post

from registry.console.addresses import SETTINGS
from registry.console.browser_request import is_whole_number
from registry.console.form_refusals import NO_REFUSAL, FormPage, FormRefusal, WrongInput
from registry.console.page_request import InjectedPage, PageRequest, PageResponse

_PATH: Final = f"{SETTINGS}/mirrors"
_ONE: Final = f"{_PATH}/{{rule:str}}"
_API: Final = "/v1/pull-through-cache-rules"
_ONE_API: Final = f"{_API}/{{rule}}"
_NUMBERS: Final = ("tag_ttl_seconds", "negative_ttl_seconds")
_LIMITS: Final = ("keep_unpulled_days", "max_bytes")
"""Fields with numbers that may be empty, for no limit."""
_DIGITS: Final = 19


async def _list(page: PageRequest, refusal: FormRefusal = NO_REFUSAL) -> PageResponse:
    found = await page.api.get(_API, limit=200)  # an account has fewer
    rules = found["pull_through_cache_rules"]
    return page.show("mirrors.html", rules=rules, base=_PATH, refusal=refusal)


async def _show(
    page: PageRequest, refusal: FormRefusal = NO_REFUSAL, probed: Mapping[str, Any] | None = None
) -> PageResponse:
    found = await page.api.get(page.fill(_ONE_API))
    rule = found["pull_through_cache_rule"]
    page.want_rights_on(rule["crn"])
    return page.show(
        "mirror.html",
        rule=rule,
        base=page.fill(_ONE),
        back=_PATH,
        refusal=refusal,
        probed=probed,
    )


_LIST: Final = FormPage(_PATH, _list)
_MIRROR: Final = FormPage(_ONE, _show)
list_mirrors, show_mirror = _LIST.get(), _MIRROR.get()


@_LIST.form()
async def create_mirror(page: InjectedPage) -> PageResponse:
    """Create a rule, and redirect to its page."""
    fields = {**mirror_fields(page.form), "prefix": page.text("prefix")}
    made = await page.api.post(_API, fields)
    return page.go(
        f"{_PATH}/{made['pull_through_cache_rule']['id']}",
        "The mirror was created. Test whether its upstream can be asked.",
    )


@_MIRROR.form()
async def save_mirror(page: InjectedPage) -> PageResponse:
    """Change a rule; the credential stays, unless the form has a secret or ``no_credential``."""
    form = page.form
    changes = {**mirror_fields(form), "enabled": "disabled" not in form}
    if "no_credential" in form:
        changes["credential"] = None
    await page.api.change("PATCH", page.fill(_ONE_API), changes)
    return page.go(page.fill(_ONE), "The mirror was saved.")


@_MIRROR.form("/test")
async def probe_mirror(page: InjectedPage) -> PageResponse:
    """Ask the upstream, and show its answer."""
    repository, _, tag = page.text("image").partition(":")
    asked = {"repository": repository, "tag": tag or "latest"} if repository else None
    probed = await page.api.change("POST", f"{page.fill(_ONE_API)}/test", asked)
    return await _show(page, probed=probed)


@post(f"{_ONE}/delete")
async def delete_mirror(page: InjectedPage) -> PageResponse:
    """Delete a rule; the cached images stay."""
    await page.api.change("DELETE", page.fill(_ONE_API))
    return page.go(_PATH, "The mirror was deleted. What it has cached stays.")


def mirror_fields(form: Mapping[str, str]) -> dict[str, Any]:
    """Return the changeable fields of a rule in the form; a credential only if one was entered.

    Raise `WrongInput` if a number field has no whole number.
    """
    fields: dict[str, Any] = {
        name: form.get(name, "").strip() for name in ("upstream_url", "upstream_prefix")
    }
    for name in (*_NUMBERS, *_LIMITS):
        text = form.get(name, "").strip()
        if text and not is_whole_number(text, _DIGITS):
            raise WrongInput("", "Seconds, days and bytes are whole numbers.")
        if text:
            fields[name] = int(text)
        elif name in _LIMITS:
            fields[name] = None
    username, secret = form.get("username", "").strip(), form.get("secret", "")
    if secret:
        fields["credential"] = {"username": username, "secret": secret}
    return fields
