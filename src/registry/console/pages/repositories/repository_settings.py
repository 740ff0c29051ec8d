"""The settings of a repository: description, tags, key, policy, and whether everyone may pull."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from litestar import post

from cloudcore.commands.records import indented
from cloudcore.errors import Conflict
from registry.console.addresses import REPOSITORY
from registry.console.control_plane import Refused, unless_refused
from registry.console.form_refusals import (
    DELETED_TEXT,
    NO_REFUSAL,
    OUTDATED,
    FormPage,
    FormRefusal,
    WrongInput,
    is_outdated,
)
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.pages.account.keys import FIELD, read_encryption_card, save_encryption_card
from registry.console.pages.repositories.repositories import api_path, path_of, read_repository

_PATH: Final = f"{REPOSITORY}/settings"
_EVERYONE: Final = "*"
_PUBLIC: Final = {"effect": "allow", "principals": [_EVERYONE], "actions": ["registry:PullImage"]}
"""The statement that lets everyone pull, without a sign-in."""

Document = dict[str, Any]


async def _page(page: PageRequest, refusal: FormRefusal = NO_REFUSAL) -> PageResponse:
    repository = await read_repository(page)
    written = page.form.get("description")
    return page.show(
        "repository_settings.html",
        refusal.status,
        repository=repository,
        description=(repository["description"] or "") if written is None else written,
        refusal=NO_REFUSAL if FIELD in page.form else refusal,
        encryption=await read_encryption_card(page, api_path(page), refusal),
        rewrap=await _last_rewrap(page),
    )


_SETTINGS: Final = FormPage(_PATH, _page)
show_settings = _SETTINGS.get()


@_SETTINGS.form()
async def save_settings(page: InjectedPage) -> PageResponse:
    """Change the description, and whether tags can move."""
    changes = {
        "description": page.text("description") or None,
        "tag_mutability": "immutable" if "immutable" in page.form else "mutable",
    }
    await page.api.change("PATCH", api_path(page), changes)
    return page.go(path_of(page).tab("settings"), "The settings were saved.")


@_SETTINGS.form("/encryption")
async def save_encryption(page: InjectedPage) -> PageResponse:
    """Bind the repository to a key, or remove its binding."""
    await save_encryption_card(page, api_path(page))
    return page.go(
        path_of(page).tab("settings"), "Saved. It applies to what is pushed from now on."
    )


@post(f"{_PATH}/rewrap")
async def start_rewrap(page: InjectedPage) -> PageResponse:
    """Start a run that moves the blobs of a repository to its key."""
    await page.api.change("POST", f"{api_path(page)}/encryption-binding/rewrap")
    return page.go(path_of(page).tab("settings"), "A run has begun.")


async def _last_rewrap(page: PageRequest) -> dict[str, Any] | None:
    """Return the last run that moved blobs to the key; None if there is none, or it is hidden."""
    path = f"{api_path(page)}/encryption-binding/rewrap/runs"
    found = await unless_refused(page.api.get(path, limit=1))
    return found["runs"][0] if found and found["runs"] else None


@post(f"{_PATH}/public")
async def make_public(page: InjectedPage) -> PageResponse:
    """Show the policy that lets everyone pull; with ``confirmed`` in the form, save it."""
    return await _change_visibility(page, is_public=True)


@post(f"{_PATH}/private")
async def make_private(page: InjectedPage) -> PageResponse:
    """Show the policy without access for everyone; with ``confirmed`` in the form, save it."""
    return await _change_visibility(page, is_public=False)


async def _change_visibility(page: PageRequest, *, is_public: bool) -> PageResponse:
    """Show how the policy would change; if the form confirms the change, make it.

    Raise `Conflict` if the policy has changed since the change was shown.
    """
    repository = await read_repository(page)
    policy = await _read_policy(page)
    document = policy["document"] if policy else None
    changed = with_public_pull(document) if is_public else without_public_pull(document)
    revision = str(policy["revision"]) if policy else "0"
    if "confirmed" not in page.form:
        await page.require("PutRepositoryPolicy")
        return page.show(
            "repository_visibility.html",
            repository=repository,
            is_public=is_public,
            before=indented(document) if document else "",
            after=indented(changed) if changed else "",
            revision=revision,
        )
    if page.form.get("revision", "") != revision:
        raise _changed()
    path = f"{api_path(page)}/policy"
    try:
        if changed is not None:
            await page.api.change("PUT", path, changed, revision=revision)
        elif document is not None:
            await page.api.change("DELETE", path, revision=revision)
    except Refused as error:
        raise _changed() if is_outdated(error) else error from None
    said = (
        "Everyone can pull from the repository now."
        if is_public
        else "Nobody can pull without a sign-in any more, within five minutes."
    )
    return page.go(path_of(page).tab("settings"), said)


def _changed() -> Conflict:
    return Conflict(
        "someone has changed the policy since it was shown, so nothing was saved; go back to the"
        " settings and choose again, to see the policy as it is now"
    )


def with_public_pull(document: Mapping[str, Any] | None) -> Document:
    """Return the policy with one more statement, which lets everyone pull."""
    if document is None:
        return {"version": "1", "statements": [_PUBLIC]}
    return {**document, "statements": [*document["statements"], _PUBLIC]}


def without_public_pull(document: Mapping[str, Any] | None) -> Document | None:
    """Return the policy without what it allows to everyone, or None if nothing is left."""
    if document is None:
        return None
    left = []
    for statement in document["statements"]:
        principals = statement.get("principals", [])
        if statement["effect"] != "allow" or _EVERYONE not in principals:
            left.append(statement)
        elif others := [each for each in principals if each != _EVERYONE]:
            left.append({**statement, "principals": others})
    return {**document, "statements": left} if left else None


async def _read_policy(page: PageRequest) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = (await page.api.get(f"{api_path(page)}/policy"))["policy"]
    except Refused as error:
        if error.status != 404:
            raise
        return None
    return found


_POLICY: Final = f"{REPOSITORY}/policy"
EXAMPLE: Final = {
    "version": "1",
    "statements": [
        {"effect": "allow", "principals": ["partner"], "actions": ["registry:PullImage"]}
    ],
}


async def _policy_page(page: PageRequest, refusal: FormRefusal = NO_REFUSAL) -> PageResponse:
    """Return the page with the policy in the editor, or an example if there is none."""
    repository = await read_repository(page)
    policy = await _read_policy(page)
    revision = policy["revision"] if policy else 0
    shown = indented(policy["document"] if policy else EXAMPLE)
    return page.show(
        "policy.html",
        repository=repository,
        policy=policy,
        written=page.form.get("document") or shown,
        saved=(shown if policy else DELETED_TEXT) if refusal.is_outdated else "",
        revision=revision if refusal.is_outdated else page.form.get("revision", revision),
        refusal=refusal,
    )


_POLICY_PAGE: Final = FormPage(_POLICY, _policy_page)
show_policy = _POLICY_PAGE.get()


@_POLICY_PAGE.form()
async def save_policy(page: InjectedPage) -> PageResponse:
    """Save the policy of a form."""
    form = page.form
    try:
        document = msgspec.json.decode(form.get("document", ""), type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise WrongInput("document", f"The policy is no JSON object: {error}") from None
    force = "true" if "force" in form else None
    path, revision = f"{api_path(page)}/policy", form.get("revision")
    try:
        await page.api.change("PUT", path, document, force=force, revision=revision)
    except Refused as error:
        if error.status not in (400, 409):
            raise
        words = OUTDATED if is_outdated(error) else error.message
        return await _policy_page(page, FormRefusal(error.status, words))
    return page.go(path_of(page).tab("policy"), "The policy was saved.")


@post(f"{_POLICY}/delete")
async def delete_policy(page: InjectedPage) -> PageResponse:
    """Delete the policy."""
    await page.api.change("DELETE", f"{api_path(page)}/policy")
    return page.go(path_of(page).tab("policy"), "The policy was deleted.")
