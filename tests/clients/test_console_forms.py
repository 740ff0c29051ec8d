"""What the forms of the console change, and what they say of what they are refused."""

from __future__ import annotations

import re

from tests.clients.console_visitors import HOME, Site, Visitor, found_in
from tests.clients.console_world import ATTESTATION, SIGNATURE, Descriptor

COLLECTION = "/console/storage/collection"


def named_in(page: str) -> list[str]:
    """Return the digests that the form of an index names, in its order."""
    return found_in(r'name="digests" value="([^"]*)"', page).split()


def digests_of(images: list[Descriptor]) -> set[str]:
    return {str(image["digest"]) for image in images}


def test_an_index_goes_with_what_nothing_else_needs(site: Site, admin: Visitor) -> None:
    pusher, name = site.pusher, "index/tangled"
    repository = pusher.repository(name)
    api = f"/v1/repositories/{repository}/images"

    def image(seed: str, *tags: str) -> Descriptor:
        return pusher.image(name, [("base", 50, "FROM"), (seed, 10, "RUN")], *tags)

    free, late, leaf = image("free"), image("late"), image("leaf")
    attestation = pusher.attach(name, free, ATTESTATION, 5)  # it is about what goes with it
    nested = pusher.index(name, [leaf])
    tagged, pinned, signed, shared = image("t", "kept"), image("p"), image("s"), image("o")
    pusher.call("PUT", f"{api}/{pinned['digest']}/pins/production", {"expires_at": None})
    pusher.attach(name, signed, SIGNATURE, 5)
    pusher.index(name, [shared], "other")
    goes = [free, late, leaf, attestation, nested]
    stays = [tagged, pinned, signed, shared]
    index = pusher.index(name, goes[:2] + goes[3:] + stays, "all")
    path = f"{HOME}/{repository}/images/{index['digest']}"

    page = admin.http.get(path).text
    named = named_in(page)
    assert named[:2] == [index["digest"], nested["digest"]]
    assert set(named) == digests_of([index, *goes])
    for why in (
        "it has a tag",
        "it is pinned",
        "something is attached to it",
        "another index lists it",
    ):
        assert page.count(f"stays: {why}<") == 1

    pusher.call("PUT", f"/v1/repositories/{repository}/tags/late", {"digest": late["digest"]})
    done = admin.send(f"{path}/delete-with-children", digests=" ".join([*named, tagged["digest"]]))
    assert done.status_code == 200
    assert "5 images were deleted." in done.text
    assert done.text.count("stays: it has a tag by now<") == 2
    there = {each["digest"] for each in pusher.call("GET", f"{api}?limit=200")["images"]}
    assert digests_of([*stays, late]) <= there
    assert not digests_of([index, free, leaf, attestation, nested]) & there
    assert admin.send(f"{path}/delete-with-children", digests=" ".join(named)).status_code == 404


def test_what_goes_with_an_index_frees_what_was_said(site: Site, admin: Visitor) -> None:
    pusher, name = site.pusher, "index/plain"
    repository = pusher.repository(name)
    other = pusher.image(name, [("shared", 300, "FROM")], "other")
    parts = [
        pusher.image(name, [("shared", 300, "FROM"), (arch, 70, "RUN")], architecture=arch)
        for arch in ("amd64", "arm64")
    ]
    index = pusher.index(name, parts, "1")
    path = f"{HOME}/{repository}/images/{index['digest']}"
    storage = pusher.call("GET", f"/v1/repositories/{repository}/images/{index['digest']}/storage")
    page = admin.http.get(path).text
    freed = found_in(r'It frees <b><span title="([0-9,]+) bytes">', page)
    assert int(freed.replace(",", "")) == storage["storage"]["exclusive_bytes"] > 0
    assert "Delete index and 2 images" in page
    assert (
        "delete-with-children"
        not in admin.http.get(f"{HOME}/{repository}/images/{other['digest']}").text
    )
    assert (
        admin.send(
            f"{HOME}/{repository}/images/{other['digest']}/delete-with-children",
            digests=str(other["digest"]),
        ).status_code
        == 409
    )

    admin.send(f"{path}/pins", name="production", days="")
    whole = {"digests": " ".join(named_in(page))}
    refused = admin.send(f"{path}/delete-with-children", **whole)
    assert refused.status_code == 409
    assert "No image was deleted." in refused.text
    assert refused.text.count("stays: ") == 3
    assert refused.text.count("<b>production</b>") == 1
    assert admin.send(f"{path}/delete-with-children", digests="x").status_code == 409
    done = admin.send(f"{path}/delete-with-children", force="on", **whole)
    assert "3 images were deleted." in done.text
    assert pusher.call("GET", f"/v1/repositories/{repository}/images")["meta"]["total"] == 1


def test_what_an_outer_index_lists_cannot_go(site: Site, admin: Visitor) -> None:
    pusher, name = site.pusher, "index/nested"
    repository = pusher.repository(name)
    inner = pusher.index(name, [pusher.image(name, [("inner", 10, "RUN")])])
    outer = pusher.index(name, [inner], "1")
    base = f"{HOME}/{repository}/images"
    assert "delete-with-children" not in admin.http.get(f"{base}/{inner['digest']}").text
    assert "Delete index and 2 images" in admin.http.get(f"{base}/{outer['digest']}").text


def test_the_collector_is_shown_and_started(site: Site, admin: Visitor) -> None:
    pusher = site.pusher
    pusher.repository("collected")
    pusher.fill_stages("collected")
    status = pusher.call("GET", "/v1/garbage-collection")["garbage_collection"]
    page = admin.http.get(COLLECTION).text
    for stage in ("unreferenced", "condemned", "quarantined"):
        held = status[f"{stage}_bytes"]
        assert held > 0
        style = rf'class="swatch {stage}"[^/]*></span>[\w ]+</p>\s*'
        shown = found_in(rf'{style}<p class="held"><b><span title="([^"]*)">', page)
        assert shown == f"{held:,} bytes"
    usage = pusher.call("GET", "/v1/storage-usage")["storage_usage"]
    late = [status["condemned_bytes"], status["quarantined_bytes"]]
    drawn = usage["pending_sweep_bytes"] - sum(late), *late
    words = ", unreferenced: {} B, condemned: {} B, in quarantine: {} B".format(*drawn)
    assert f'{words}"' in page

    assert "A run of the collector has started." in admin.told(admin.send(COLLECTION))
    pusher.collect()
    page = admin.http.get(COLLECTION).text
    assert "Collect now" in page
    row = found_in(r"(?s)<tbody>\s*<tr>(.*?)</tr>", page)
    assert ">succeeded<" in row
    assert re.search(r'title="crn:[^"]*">(?:admin \(service account\)|\S+ as admin)<', row)
