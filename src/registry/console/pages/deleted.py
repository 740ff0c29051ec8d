"""Deleted repositories, images and tags, and their restoration."""

from __future__ import annotations

from typing import Final

from litestar import get, post

from registry.console.control_plane import Refused
from registry.console.page_request import InjectedPage, PageResponse
from registry.console.pages.repository_paths import api_path, path_of, read_repository
from registry.console.paths import HOME, IMAGE, REPOSITORY

_PAGE: Final = 50


@get(f"{HOME}/deleted")
async def list_repositories(page: InjectedPage) -> PageResponse:
    """Show the deleted repositories of the account."""
    found = await page.api.get(
        "/v1/repositories/deleted", marker=page.query.get("marker"), limit=_PAGE
    )
    page.asks_about(*(each["crn"] for each in found["repositories"]))
    return page.show(
        "deleted_repositories.html", repositories=found["repositories"], meta=found["meta"]
    )


@post(f"{REPOSITORY}/restore")
async def restore_repository(page: InjectedPage) -> PageResponse:
    """Restore a repository with its images and tags."""
    await page.api.post(f"{api_path(page)}/restore")
    return page.go(path_of(page).base, "repository-restored")


@get(f"{REPOSITORY}/deleted")
async def list_contents(page: InjectedPage) -> PageResponse:
    """Show the deleted images and tags of a repository."""
    path = api_path(page)
    query = page.query
    repository = await read_repository(page)
    images = await page.api.get(f"{path}/images/deleted", marker=query.get("marker"), limit=_PAGE)
    tags = await page.api.get(f"{path}/deleted-tags", marker=query.get("tags"), limit=_PAGE)
    return page.show(
        "deleted.html",
        repository=repository,
        images=images["images"],
        meta=images["meta"],
        tags=tags["tags"],
        tags_meta=tags["meta"],
    )


@post(f"{IMAGE}/restore")
async def restore_image(page: InjectedPage) -> PageResponse:
    """Restore an image, with its tags except those that are in use again."""
    outcome = await page.api.post(
        f"{api_path(page)}/images/restore", {"digests": [page.parameters["digest"]]}
    )
    for failure in outcome["failures"]:
        raise Refused(409, failure["code"], failure["message"], page.request_id)
    restored = outcome["restored"][-1]["digest"]  # the children of an index come before it
    return page.go(path_of(page).image(restored), "image-restored")


HANDLERS: Final = (list_repositories, restore_repository, list_contents, restore_image)
