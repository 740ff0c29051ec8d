"""`<name>`: the grammar, and names made of the API's own words."""

from __future__ import annotations

import pytest

from tests.conformance.client import Registry
from tests.conformance.content import blob, image_index
from tests.conformance.expect import refused


@pytest.mark.parametrize(
    "suffix",
    ["a", "a/b/c/d/e", "a.b", "a_b", "a__b", "a-b", "a--b", "a---b", "0", "x1.y2_z3__w4--v5"],
)
def test_names_of_the_grammar(registry: Registry, repository: str, suffix: str) -> None:
    """§ Pulling manifests: `<name>` MUST match the regular expression; all it matches works."""
    name = f"{repository}/{suffix}"
    content = registry.push_blob(name, blob())
    assert registry.get_blob(name, content.digest).content == content.body
    image = registry.push_image(name, "v1")
    assert registry.get_manifest(name, "v1").content == image.body
    assert registry.list_tags(name).json()["name"] == name


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
def test_names_of_the_apis_words(registry: Registry, repository: str, suffix: str) -> None:
    """Ours: paths are matched from the right, so that any word may be in a name."""
    name = f"{repository}/{suffix}"
    image = registry.push_image(name, "v1")
    content = registry.push_blob(name, blob())
    upload = registry.start_upload(name)
    assert registry.append(upload, b"x").status_code == 202
    assert registry.http.get(upload).status_code == 204
    assert registry.http.delete(upload).status_code == 204
    assert registry.get_manifest(name, "v1").content == image.body
    assert registry.get_blob(name, content.digest).content == content.body
    assert registry.list_tags(name).json() == {"name": name, "tags": ["v1"]}
    assert registry.list_referrers(name, image.digest).json()["manifests"] == []
    assert registry.delete_manifest(name, "v1").status_code == 202


@pytest.mark.entrepot
def test_longest_name(registry: Registry) -> None:
    """Ours: the whole name has at most 213 characters."""
    longest = registry.new_repository() + "/"
    longest += "n" * (213 - len(longest))
    registry.push_manifest(longest, image_index(), "v1")
    assert registry.list_tags(longest).json()["name"] == longest
    refused(registry.list_tags(longest + "n"), 400, "NAME_INVALID")
    refused(registry.http.post(f"/v2/{longest}n/blobs/uploads/"), 400, "NAME_INVALID")


@pytest.mark.entrepot
@pytest.mark.parametrize(
    "name",
    [
        "single",
        "UPPER/case",
        "dev/Upper",
        "dev/a_-b",
        "dev/a..b",
        "dev/a___b",
        "dev/-a",
        "dev/a-",
        "dev/.a",
        "d/short-handle",
        "un_derscore/handle",
        "dot.ted/handle",
        "double--dash/handle".replace("--", "-") + "/-",
        "h" * 33 + "/long-handle",
        "dev/a b",
        "dev/ü",
        "dev/a%2Fb%2F",
    ],
)
def test_bad_names(registry: Registry, name: str) -> None:
    """Ours: handle of 2 to 32, a repository after it, OCI's grammar; else 400 `NAME_INVALID`."""
    refused(registry.list_tags(name), 400, "NAME_INVALID")
    refused(registry.http.post(f"/v2/{name}/blobs/uploads/"), 400, "NAME_INVALID")
    refused(registry.http.get(f"/v2/{name}/manifests/v1"), 400, "NAME_INVALID")
