"""The repositories of the account: list, create, delete."""

from __future__ import annotations

from typing import Final

from litestar import get, post

from registry.console.addresses import path_of_id
from registry.console.control_plane import Refused
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.pages.repository_paths import api_path, path_in
from registry.console.paths import HOME, REPOSITORY

_LIST: Final = "registry:DescribeRepositories"
_PAGE: Final = 50


@get(HOME)
async def list_repositories(page: InjectedPage) -> PageResponse:
    """Show the repositories, or those whose names begin with a prefix.

    This is the first page after the sign-in: a role that may list none is led to one that it may.
    """
    try:
        return await _page(page)
    except Refused as error:
        if error.status != 403:
            raise
        rights = await page.rights()
        for noun in page.console.nouns:
            if rights.may_all(noun.list_action):
                return page.go(noun.path)
        raise


@post(HOME)
async def create_repository(page: InjectedPage) -> PageResponse:
    """Create a repository, and show it."""
    form = page.form
    body = {
        "name": form.get("name", ""),
        "description": form.get("description") or None,
        "tag_mutability": "immutable" if "immutable" in form else "mutable",
    }
    try:
        made = await page.api.post("/v1/repositories", body)
    except Refused as error:
        if error.status not in (400, 409):
            raise
        field = "description" if error.params.get("field") == "description" else "name"
        return await _page(page, error.status, field, error.sentence)
    return page.go(path_in(page, made["repository"]).base, "repository-created")


@post(f"{REPOSITORY}/delete")
async def delete_repository(page: InjectedPage) -> PageResponse:
    """Delete a repository with its images and tags."""
    await page.api.change("DELETE", api_path(page), force="true")
    undo = path_of_id(page.parameters["repository"]).tab("restore")  # its name is free now
    return page.go(f"{HOME}/deleted", "repository-deleted", undo, None, "RestoreRepository")


async def _page(
    page: PageRequest, status: int = 200, field: str = "", complaint: str = ""
) -> PageResponse:
    query = page.query
    prefix, marker = query.get("prefix", "").strip(), query.get("marker")
    try:
        found = await page.api.get(
            "/v1/repositories", name_prefix=prefix, marker=marker, limit=_PAGE
        )
    except Refused as error:
        if marker or not await _is_shown(page, error, prefix):
            raise
        found = {"repositories": [], "meta": None}
        is_partial = error.status == 403
        prefixes = error.params.get("name_prefixes", [])
    else:
        is_partial, prefixes = False, []
    return page.show(
        "repositories.html",
        status,
        repositories=found["repositories"],
        meta=found["meta"],
        prefix=prefix,
        is_partial=is_partial,
        prefixes=prefixes,
        registry_url=page.console.settings.url,
        field=field,
        complaint=complaint,
    )


async def _is_shown(page: PageRequest, error: Refused, prefix: str) -> bool:
    """Return True if the page is shown without repositories, beside the search.

    No valid name begins with the prefix, or the role may list only those with some other prefix.
    """
    if error.status == 403:
        return (await page.rights()).may_some(_LIST)
    return error.status == 400 and bool(prefix)


HANDLERS: Final = (list_repositories, create_repository, delete_repository)
