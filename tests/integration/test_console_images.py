"""The list of images: tags first, what belongs to an image folded, and a selection deleted."""

from __future__ import annotations

import json
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.console.pages.repositories.image_contents import (
    MAX_SHOWN,
    indented_length,
    raw_document,
)
from registry.console.pages.repositories.image_rows import natural_order
from registry.console.pages.repositories.images import pull_command
from registry.oci.media_types import OCI_INDEX, OCI_MANIFEST
from registry.services.repositories import search
from tests.integration.console_shop import CONFIG_TYPE, Descriptor, Shop, digest_of

SIGNATURE = "application/vnd.cncf.notary.signature"
SBOM = "application/spdx+json"


async def attach(shop: Shop, subject: Descriptor, artifact_type: str) -> Descriptor:
    plain = {key: subject[key] for key in ("mediaType", "digest", "size")}
    return await shop.image(
        f"{artifact_type} of {subject['digest']}", subject=plain, artifactType=artifact_type
    )


def row_of(page: str, digest: str) -> str:
    """Return the row of an image in a page."""
    rows = re.findall(r"(?s)<tr>(.*?)</tr>", page)
    (found,) = [row for row in rows if f'title="{digest}"' in row.partition("about")[0]]
    return str(found)


def test_names_are_sorted_as_people_count() -> None:
    names = ["1.10", "1.9", "latest", "1.9-rc2", "1.9-rc10", "v2", "10", "2"]
    assert natural_order(names) == ["1.9", "1.9-rc2", "1.9-rc10", "1.10", "2", "10", "latest", "v2"]
    assert natural_order(["a", "1", "٣"]) == ["1", "٣", "a"]


async def test_what_belongs_to_an_image_is_folded_and_marked(shop: Shop) -> None:
    parts = [await shop.image(f"fold-{number}") for number in range(2)]
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": parts}
    whole = await shop.manifest(index, "1.10")
    for tag in ("1.9", "1.2"):
        await shop.call("PUT", f"/tags/{tag}", {"digest": whole["digest"]})
    await attach(shop, whole, SBOM)
    old = await shop.image("old signature", whole["digest"].replace(":", "-") + ".sig")
    await shop.call("PUT", f"/images/{whole['digest']}/pins/production", {"expires_at": None})
    alone = await shop.image("untagged and alone")

    listed = await shop.see()
    row = row_of(listed, whole["digest"])
    assert re.findall(r'class="tag"[^>]*>([^<]*)<', row) == ["1.2", "1.9", "1.10"]
    # Green is what the registry knows itself. What is attached was verified by nobody.
    assert re.findall(r'class="mark has">([^<]*)<', row) == ["pinned"]
    said = re.findall(r'class="mark">([^<]*)<', row)
    assert said == ["Multi-platform", "has a signature", "has an SBOM"]
    assert old["digest"] not in listed
    assert re.search("[12] signatures? (or|and) other attached artifact", listed)
    assert 'data-copy="registry.test/acme/shop:1.2" hidden' in row
    assert old["digest"] in await shop.see("?all=1")

    untagged = await shop.see("?tag_status=untagged")
    assert alone["digest"] in untagged
    assert parts[0]["digest"] not in untagged
    assert re.search("[23] parts of an index and 1 signature", untagged)
    everything = await shop.see("?tag_status=untagged&all=1")
    assert "part of <a" in row_of(everything, parts[0]["digest"])


async def test_tags_are_sorted_and_those_of_signatures_folded(shop: Shop) -> None:
    made = await shop.image("tags", "tags-10")
    spelled = made["digest"].replace(":", "-") + ".att"
    await shop.image("an attestation", spelled)
    shop.served.clock.advance(60)
    await shop.call("PUT", "/tags/tags-9", {"digest": made["digest"]})

    def tags_of(page: str) -> list[str]:
        return re.findall(r'<th scope="row"><a class="tag"[^>]*>([^<]*)<', page)

    listed = await shop.see("/tags?prefix=tags")
    assert tags_of(listed) == ["tags-9", "tags-10"]
    await shop.call("PUT", "/tags/tags-8", {"digest": made["digest"]})
    assert tags_of(await shop.see("/tags?prefix=tags&sort=recent"))[-1] == "tags-10"
    folded = await shop.see("/tags?prefix=sha256")
    assert spelled not in tags_of(folded)
    assert "folded." in folded
    assert spelled in tags_of(await shop.see("/tags?prefix=sha256&all=1"))


async def test_a_search_says_above_its_list_that_names_may_be_missing(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while its index is filled: whether or not something was found."""
    note = "This list is not complete: the index of names is still being filled"
    whole = (await shop.browser.get("/console/search?text=app")).text
    assert note not in whole
    monkeypatch.setattr(search, "MAX_UNSETTLED", 1)
    found = (await shop.browser.get("/console/search?text=app")).text
    nothing = (await shop.browser.get("/console/search?text=absent-name")).text
    assert found.index('role="status">This list') < found.index('href="/console/acme/app"')
    assert note in nothing
    assert re.search(r"No name contains <b>absent-name</b> so far\.", nothing)


async def test_an_image_is_told_whole(shop: Shop) -> None:
    config = {
        "os": "linux",
        "architecture": "amd64",
        "config": {"Env": ["PATH=/bin", "A=b=c"], "Labels": {"org.example": "<yes>"}},
        "history": [
            {"created_by": "COPY . /app"},
            {"created_by": "ENTRYPOINT", "empty_layer": True},
        ],
    }
    document = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": await shop.blob(json.dumps(config).encode(), CONFIG_TYPE),
        "layers": [await shop.blob(b"told whole", "application/x")],
    }
    part = await shop.manifest(document)
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [part]}
    whole = await shop.manifest(index, "told")
    page = await shop.see(f"/images/{part['digest']}")
    for told in (
        '<dt class="mono wraps">A</dt><dd class="mono wraps">b=c</dd>',
        '<dt class="mono wraps">org.example</dt><dd class="mono wraps">&lt;yes&gt;</dd>',
        "History: 2 build steps",
        'ENTRYPOINT <span class="mark">no layer</span>',
        "&#34;schemaVersion&#34;: 2,\n",
        f'<dt>Part of</dt><dd><a class="mono" href="/console/acme/shop@{whole["digest"]}"',
        f"docker pull registry.test/acme/shop@{part['digest']}",
    ):
        assert told in page
    file = await shop.browser.get(shop.address(f"/images/{part['digest']}/manifest"))
    assert digest_of(file.content) == part["digest"]
    assert file.headers["content-disposition"].startswith("attachment; ")
    assert file.headers["content-type"] == "application/octet-stream"


async def test_the_blobs_of_an_index_are_told_from_images_that_are_missing(shop: Shop) -> None:
    layer = await shop.blob(b"of a build cache", "application/x-layer")
    part = await shop.image("beside blobs")
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [layer, part]}
    whole = await shop.manifest(index, "cache")
    page = await shop.see(f"/images/{whole['digest']}")
    row = row_of(page, layer["digest"])
    assert '<th scope="row" class="wraps">application/x-layer</th>' in row
    assert "16 B" in row
    assert "not here" not in page
    assert f'href="/console/acme/shop@{part["digest"]}"' in page
    await shop.call("DELETE", f"/images/{whole['digest']}")  # other tests count what is here


@pytest.mark.parametrize(
    ("kind", "tags", "command"),
    [
        ("Image", ["2", "10"], "docker pull h/a/b:2"),
        ("Multi-platform", [], "docker pull h/a/b@sha256:1"),
        ("Helm chart", ["1.2.3"], "helm pull oci://h/a/b --version 1.2.3"),
        ("SBOM", [f"sha256-{'0' * 64}.sbom"], "oras pull h/a/b@sha256:1"),
    ],
)
def test_each_kind_is_pulled_by_its_own_program(kind: str, tags: list[str], command: str) -> None:
    assert pull_command({"tags": tags, "digest": "sha256:1"}, kind, "h/a/b") == command


def test_a_large_document_is_cut() -> None:
    assert raw_document(b"{}").is_whole
    assert raw_document(b'{"a":[1]}').text == '{\n  "a": [\n    1\n  ]\n}'
    cut = raw_document(b"[" + b"1," * 100_000)
    assert (len(cut.text), cut.size, cut.is_whole) == (MAX_SHOWN, 200_001, False)
    assert raw_document(b'{"a": "\xff').text == '{"a": "\ufffd'


def test_a_document_that_grows_too_much_is_not_indented(monkeypatch: pytest.MonkeyPatch) -> None:
    formatted: list[int] = []

    def counting(document: bytes, *, indent: int) -> bytes:
        formatted.append(len(document))
        return document

    monkeypatch.setattr(
        "registry.console.pages.repositories.image_contents.msgspec.json.format", counting
    )
    deep = b"[" * 900 + b",".join([b"1"] * 31_000) + b"]" * 900  # 60 MB once it is indented
    assert len(deep) <= MAX_SHOWN
    for document in (deep, b"[" * MAX_SHOWN, b'{"' * (MAX_SHOWN // 2)):
        found = raw_document(document)
        assert (found.text, found.is_whole, found.is_indented) == (document.decode(), True, False)
        assert formatted == []
    assert raw_document(b'{"text":"' + b"[{,:" * 1000 + b'\\""}').is_indented
    assert len(formatted) == 1


@given(
    st.recursive(
        st.none() | st.integers(-9, 9) | st.text(max_size=5),
        lambda part: st.lists(part) | st.dictionaries(st.text(max_size=5), part),
        max_leaves=20,
    )
)
def test_the_length_of_indented_json_is_told_before_it_is_made(value: object) -> None:
    document = msgspec.json.encode(value)
    indented = msgspec.json.format(document, indent=2)
    assert len(indented) <= indented_length(document) <= 3 * len(indented)
