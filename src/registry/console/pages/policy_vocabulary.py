"""What policies can name: the list beside the editor, searched without script."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from registry.console.page_request import PageRequest

FIND: Final = "find"
"""The parameter of the query, or the field of the form, with the words to search for."""


class PolicyVocabulary(NamedTuple):
    """Actions and resources that contain the words of a search."""

    actions: Sequence[dict[str, Any]]
    resources: Sequence[dict[str, Any]]
    conditions: Sequence[dict[str, Any]]
    principals: Sequence[dict[str, Any]]
    find: str


async def read_vocabulary(page: PageRequest) -> PolicyVocabulary:
    """Return what policies can name, as far as it matches the page's search."""
    find = (page.form.get(FIND) or page.query.get(FIND, "")).strip()
    found = await page.api.get("/v1/actions")
    actions = [each for each in found["actions"] if matches(find, each["name"], each["summary"])]
    kinds = {each["resource"] for each in actions}
    resources = [each for each in found["resources"] if not find or each["crn"] in kinds]
    return PolicyVocabulary(actions, resources, found["conditions"], found["principals"], find)


def matches(find: str, *texts: str) -> bool:
    """Return True if each word of `find` is in one of the texts, in any case."""
    whole = " ".join(texts).lower()
    return all(word in whole for word in find.lower().split())
