"""The repositories of the account: list, search, create, delete and restore."""

from __future__ import annotations

from typing import Any, Final

from litestar import get, post

from registry.console.addresses import (
    HOME,
    IMAGE,
    REPOSITORY,
    RepositoryPath,
    path_of_id,
    path_of_name,
    path_of_record,
)
from registry.console.control_plane import Refused
from registry.console.form_refusals import NO_REFUSAL, FormRefusal, refusal_of
from registry.console.page_request import InjectedPage, PageRequest, PageResponse


def path_of(page: PageRequest) -> RepositoryPath:
    """Return the console address of the request's repository."""
    if page.address is None:
        return path_of_id(page.parameters["repository"])
    return path_of_name(*page.address.name)


def api_path(page: PageRequest) -> str:
    """Return the path of the request's repository on ``/v1``."""
    return f"/v1/repositories/{page.parameters['repository']}"


async def read_repository(page: PageRequest, *, is_changed: bool = False) -> dict[str, Any]:
    """Return the request's repository; if `is_changed`, read its record and counts again."""
    if page.repository is not None and not is_changed:
        return dict(page.repository)
    answer: dict[str, Any] = await page.api.get(api_path(page))
    found: dict[str, Any] = answer["repository"]
    return found


_LIST: Final = "registry:DescribeRepositories"
_PAGE: Final = 50


@get(HOME)
async def list_repositories(page: InjectedPage) -> PageResponse:
    """Show the repositories, or those whose names begin with a prefix.

    This is the first page after the sign-in, so a role that may list no repositories is redirected
    to the first list in the menu that it may read.
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
        refusal = refusal_of(error)
        field = "description" if refusal.field == "description" else "name"
        return await _page(page, refusal._replace(field=field))
    return page.go(
        path_of_record(page.acting.account, made["repository"]).base,
        "The repository is there. Push to it with the lines below.",
    )


@post(f"{REPOSITORY}/delete")
async def delete_repository(page: InjectedPage) -> PageResponse:
    """Delete a repository with its images and tags."""
    await page.api.change("DELETE", api_path(page), force="true")
    undo = path_of_id(page.parameters["repository"]).tab("restore")  # the name is free now
    return page.go(
        f"{HOME}/deleted",
        "The repository was deleted. What can be restored is listed here.",
        undo,
        undo_action="RestoreRepository",
    )


async def _page(page: PageRequest, refusal: FormRefusal = NO_REFUSAL) -> PageResponse:
    prefix = page.query.get("prefix", "").strip()
    is_partial, prefixes = False, []
    try:
        found = await page.api.get(
            "/v1/repositories", name_prefix=prefix, marker=page.marker, limit=_PAGE
        )
    except Refused as error:
        if page.marker or not await _is_shown(page, error, prefix):
            raise
        found = {"repositories": [], "meta": None}
        is_partial = error.status == 403
        prefixes = error.params.get("name_prefixes", [])
    return page.show(
        "repositories.html",
        repositories=found["repositories"],
        meta=found["meta"],
        prefix=prefix,
        is_partial=is_partial,
        prefixes=prefixes,
        registry_url=page.console.settings.url,
        refusal=refusal,
    )


async def _is_shown(page: PageRequest, error: Refused, prefix: str) -> bool:
    """Return True if the error only means that the list is empty.

    Either no valid name begins with `prefix`, or the role may only list names with other prefixes.
    """
    if error.status == 403:
        return (await page.rights()).may_some(_LIST)
    return error.status == 400 and bool(prefix)


@get(f"{HOME}/deleted")
async def list_deleted_repositories(page: InjectedPage) -> PageResponse:
    """Show the deleted repositories of the account."""
    found = await page.api.get("/v1/repositories/deleted", marker=page.marker, limit=_PAGE)
    page.want_rights_on(*(each["crn"] for each in found["repositories"]))
    return page.show(
        "deleted_repositories.html", repositories=found["repositories"], meta=found["meta"]
    )


@post(f"{REPOSITORY}/restore")
async def restore_repository(page: InjectedPage) -> PageResponse:
    """Restore a repository with its images and tags."""
    await page.api.post(f"{api_path(page)}/restore")
    return page.go(path_of(page).base, "The repository is back, with all it held.")


@get(f"{REPOSITORY}/deleted")
async def list_contents(page: InjectedPage) -> PageResponse:
    """Show the deleted images and tags of a repository."""
    path = api_path(page)
    repository = await read_repository(page)
    images = await page.api.get(f"{path}/images/deleted", marker=page.marker, limit=_PAGE)
    tags = await page.api.get(f"{path}/deleted-tags", marker=page.query.get("tags"), limit=_PAGE)
    return page.show(
        "deleted.html",
        repository=repository,
        images=images["images"],
        meta=images["meta"],
        tags=tags["tags"],
        tags_meta=tags["meta"],
    )


async def restore_images(page: PageRequest, digests: list[str]) -> list[dict[str, Any]]:
    """Restore deleted images, and return them; raise `Refused` if one cannot be restored."""
    outcome = await page.api.post(f"{api_path(page)}/images/restore", {"digests": digests})
    for failure in outcome["failures"]:
        raise Refused(409, failure["code"], failure["message"], page.request_id)
    restored: list[dict[str, Any]] = outcome["restored"]
    return restored


@post(f"{IMAGE}/restore")
async def restore_image(page: InjectedPage) -> PageResponse:
    """Restore an image, with its tags except those that are in use again."""
    restored = await restore_images(page, [page.parameters["digest"]])
    digest = restored[-1]["digest"]  # the children of an index come before it
    return page.go(path_of(page).image(digest), "The image is back.")


@get("/console/search")
async def search(page: InjectedPage) -> PageResponse:
    """Show the repositories and tags whose names contain the text of the search field."""
    text = page.query.get("text", "").strip()
    found: dict[str, Any] | None = None
    refusal = ""
    if text:
        try:
            found = await page.api.get(
                "/v1/repositories/search", text=text, marker=page.marker, limit=100
            )
        except Refused as error:
            if error.status not in (400, 403):
                raise
            refusal = error.sentence
    return page.show("search.html", text=text, found=found, refusal=refusal)
