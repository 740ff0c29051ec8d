"""`<name>`: the grammar, and names made of the API's own words."""

from __future__ import annotations

import pytest

from tests.conformance.client import Registry, Repository
from tests.conformance.content import blob, image_index
from tests.conformance.expect import refused


@pytest.mark.parametrize(
    "suffix",
    ["a", "a/b/c/d/e", "a.b", "a_b", "a__b", "a-b", "a--b", "a---b", "0", "x1.y2_z3__w4--v5"],
)
def test_names_of_the_grammar(repository: Repository, suffix: str) -> None:
    """§ Pulling manifests: `<name>` MUST match the regular expression; all it matches works."""
    name = repository.registry[f"{repository}/{suffix}"]
    content = name.push_blob(blob())
    assert name.get_blob(content.digest).content == content.body
    image = name.push_image("v1")
    assert name.get_manifest("v1").content == image.body
    assert name.list_tags().json()["name"] == name


@pytest.mark.entrepot
@pytest.mark.parametrize(
    "suffix",
    [
        "blobs",
        "manifests",
        "tags",
        "uploads",
        "referrers",
        "tags/list",
        "blobs/uploads",
        "manifests/latest",
        "blobs/uploads/blobs/uploads",
        "v2",
        "list",
    ],
)
def test_names_of_the_apis_words(repository: Repository, suffix: str) -> None:
    """Ours: paths are matched from the right, so that any word may be in a name."""
    name = repository.registry[f"{repository}/{suffix}"]
    image = name.push_image("v1")
    content = name.push_blob(blob())
    upload = name.start_upload()
    assert repository.append(upload, b"x").status_code == 202
    assert repository.http.get(upload).status_code == 204
    assert repository.http.delete(upload).status_code == 204
    assert name.get_manifest("v1").content == image.body
    assert name.get_blob(content.digest).content == content.body
    assert name.list_tags().json() == {"name": name, "tags": ["v1"]}
    assert name.list_referrers(image.digest).json()["manifests"] == []
    assert name.delete_manifest("v1").status_code == 202


@pytest.mark.entrepot
def test_longest_name(registry: Registry) -> None:
    """Ours: the whole name has at most 213 characters."""
    longest = registry.new_repository() + "/"
    longest += "n" * (213 - len(longest))
    registry[longest].push_manifest(image_index(), "v1")
    assert registry[longest].list_tags().json()["name"] == longest
    refused(registry[longest + "n"].list_tags(), 400, "NAME_INVALID")
    refused(registry.http.post(f"/v2/{longest}n/blobs/uploads/"), 400, "NAME_INVALID")
