"""Paths and data that the pages of a repository share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from registry.console.addresses import (
    RepositoryPath,
    path_of_id,
    path_of_name,
    path_of_record,
)
from registry.console.page_request import PageRequest


def path_of(page: PageRequest) -> RepositoryPath:
    """Return the address of the repository's first page."""
    if page.address is None:
        return path_of_id(page.parameters["repository"])
    return path_of_name(*page.address.name)


def path_in(page: PageRequest, repository: Mapping[str, Any]) -> RepositoryPath:
    """Return the address of a repository's first page; `repository` is a record or a reference."""
    acting = page.session.acting
    account = acting.account if acting else ""
    return path_of_record(account, repository)


def api_path(page: PageRequest) -> str:
    """Return the path of the repository on ``/v1``."""
    return f"/v1/repositories/{page.parameters['repository']}"


async def read_repository(page: PageRequest, *, is_changed: bool = False) -> dict[str, Any]:
    """Return the repository of the requested page, with the counts of now if it `is_changed`."""
    if page.repository is not None and not is_changed:
        return dict(page.repository)
    answer: dict[str, Any] = await page.api.get(api_path(page))
    found: dict[str, Any] = answer["repository"]
    return found
