"""end-8a, end-8b: listing tags; and `/v2/_catalog`, which is not OCI, and expected by tools."""

from __future__ import annotations

import pytest

from tests.conformance.client import Registry, Repository, next_page
from tests.conformance.content import image_index
from tests.conformance.expect import refused

TAGS = ["alpha", "beta", "delta", "gamma"]


@pytest.fixture(scope="module")
def tagged(shared: Repository) -> Repository:
    """Return a repository with TAGS, pushed in another order."""
    image = shared.push_image()
    for tag in ("gamma", "alpha", "delta", "beta"):
        shared.push_manifest(image, tag)
    return shared


def all_tags(repository: Repository, url: str) -> list[list[str]]:
    """Follow `Link` from `url` and return the tags page by page."""
    pages = []
    following: str | None = url
    while following:
        response = repository.http.get(following)
        assert response.status_code == 200
        pages.append(response.json()["tags"])
        following = next_page(response)
        assert len(pages) < 100
    return pages


def test_list_is_json_of_name_and_tags(tagged: Repository) -> None:
    """§ Listing Tags (end-8a): MUST be 200 and JSON `{name, tags}`, the tags in lexical order."""
    response = tagged.list_tags()
    assert response.status_code == 200
    assert response.json()["name"] == tagged
    assert response.json()["tags"] == TAGS


def test_order_of_mixed_case(repository: Repository) -> None:
    """§ Listing Tags: lexical order MUST be kept, without case or (newer) by ASCII."""
    image = repository.push_image()
    for tag in ("b", "C", "a", "D", "1", "_"):
        repository.push_manifest(image, tag)
    tags = repository.list_tags().json()["tags"]
    assert tags in (sorted(tags), sorted(tags, key=str.lower))
    assert set(tags) == {"b", "C", "a", "D", "1", "_"}


def test_absent_repository_is_404(repository: Repository) -> None:
    """§ Endpoints (end-8a): failure is 404."""
    assert repository.list_tags().status_code == 404


@pytest.mark.parametrize("n", [1, 2, 3, 4, 100])
def test_n_limits_the_list(tagged: Repository, n: int) -> None:
    """§ Listing Tags (end-8b): MUST include n results, or fewer with a `Link`."""
    response = tagged.list_tags(n=n)
    tags = response.json()["tags"]
    assert tags == TAGS[: len(tags)]
    assert len(tags) <= n
    assert len(tags) == min(n, len(TAGS)) or next_page(response)


def test_n_of_zero_is_an_empty_list(tagged: Repository) -> None:
    """§ Listing Tags: with n zero MUST be an empty list, MUST NOT include a `Link`."""
    response = tagged.list_tags(n=0)
    assert response.status_code == 200
    assert response.json()["tags"] == []
    assert "link" not in response.headers


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_link_leads_through_all_tags(tagged: Repository, n: int) -> None:
    """§ Listing Tags: a `Link` MUST be RFC 5988 with rel="next"; followed, each tag comes once."""
    response = tagged.list_tags(n=n)
    if "link" in response.headers:
        assert next_page(response)
        pages = all_tags(tagged, str(response.request.url))
        assert [tag for page in pages for tag in page] == TAGS


@pytest.mark.parametrize("last", TAGS)
@pytest.mark.parametrize("n", [None, 1, 2])
def test_tags_after_last(tagged: Repository, n: int | None, last: str) -> None:
    """§ Listing Tags (end-8b): begins non-inclusively with `last`; `n` is OPTIONAL with it."""
    query = {"last": last} if n is None else {"last": last, "n": n}
    expected = TAGS[TAGS.index(last) + 1 :][:n]
    assert (tagged.list_tags(**query).json()["tags"] or []) == expected


@pytest.mark.entrepot
def test_order_is_by_byte(repository: Repository) -> None:
    """Ours: byte order, `last` need not exist."""
    tags = ["-".join(pair) for pair in ("1a", "Aa", "Za", "_a", "aa", "aB", "za")]
    index = image_index()
    assert repository.put_manifest(index, tags=reversed(tags)).status_code == 201
    assert repository.list_tags().json()["tags"] == sorted(tags)
    assert repository.list_tags(last="ZZZ").json()["tags"] == ["_-a", "a-B", "a-a", "z-a"]


@pytest.mark.entrepot
def test_link_exactly_when_more(tagged: Repository) -> None:
    """Ours: a `Link` when, and only when, tags are left; path-absolute, with n and last."""
    assert tagged.list_tags(n=3).headers["link"] == (
        f'</v2/{tagged}/tags/list?n=3&last=delta>; rel="next"'
    )
    for query in ({"n": 4}, {"n": 5}, {}):
        assert "link" not in tagged.list_tags(**query).headers
    assert "link" not in tagged.list_tags(n=1, last="delta").headers
    assert "link" not in tagged.list_tags(n=2, last="zzz").headers


@pytest.mark.entrepot
def test_pages_end_at_a_thousand(repository: Repository) -> None:
    """Ours: the default page is 1000, and `n` over 1000 clamps to it."""
    tags = [f"t{number:04}" for number in range(1050)]
    index = image_index()
    for start in range(0, len(tags), 50):
        pushed = repository.put_manifest(index, tags=tags[start : start + 50])
        assert pushed.status_code == 201
    for query in ("", "?n=1001", "?n=1000000000000000000"):
        pages = all_tags(repository, f"/v2/{repository}/tags/list{query}")
        assert pages == [tags[:1000], tags[1000:]]


@pytest.mark.entrepot
def test_no_tags(repository: Repository) -> None:
    """Ours: `tags: []` without tags; 404 `NAME_UNKNOWN` without a repository."""
    refused(repository.list_tags(), 404, "NAME_UNKNOWN")
    repository.push_image()
    assert repository.list_tags().json() == {"name": repository, "tags": []}


@pytest.mark.entrepot
def test_catalog_lists_the_repositories(registry: Registry) -> None:
    """Ours: 200 `{repositories}` in byte order, `last` excluded, a `Link` when there is more."""
    base = registry.new_repository()
    names = [f"{base}/{suffix}" for suffix in ("a", "b", "b0", "c")]
    for name in reversed(names):
        registry[name].push_manifest(image_index(), "v1")
    seen: list[str] = []
    url: str | None = f"/v2/_catalog?n=2&last={base}"
    while url and len(seen) < len(names):
        response = registry.http.get(url)
        assert response.status_code == 200
        assert set(response.json()) == {"repositories"}
        assert len(response.json()["repositories"]) <= 2
        seen += response.json()["repositories"]
        url = next_page(response)
    assert seen[: len(names)] == names


@pytest.mark.entrepot
def test_all_pages_of_the_catalog_are_in_order(registry: Registry) -> None:
    """Ours: followed to the end, each name comes once, in byte order."""
    name = registry.new_repository()
    registry[name].push_manifest(image_index(), "v1")
    seen: list[str] = []
    url: str | None = "/v2/_catalog?n=500"
    while url:
        response = registry.http.get(url)
        seen += response.json()["repositories"]
        url = next_page(response)
    assert name in seen
    assert seen == sorted(set(seen))


@pytest.mark.entrepot
def test_n_of_zero_in_the_catalog(registry: Registry) -> None:
    """Ours: as for tags, an empty list without a `Link`."""
    response = registry.http.get("/v2/_catalog", params={"n": 0})
    assert response.json() == {"repositories": []}
    assert "link" not in response.headers
