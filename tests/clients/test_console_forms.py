"""What the forms of the console change, and what they say of what they are refused."""

from __future__ import annotations

import re
from importlib.metadata import version

import httpx

from tests.clients.console_visitors import HOME, Site, Visitor, found_in
from tests.clients.console_world import EMPTY, EMPTY_TYPE
from tests.clients.images import OCI

COLLECTION = "/console/storage/collection"


def named_in(page: str) -> list[str]:
    """Return the digests that the form of an index names, in its order."""
    return found_in(r'name="digests" value="([^"]*)"', page).split()


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


def test_a_description_that_cannot_be_is_named(admin: Visitor) -> None:
    refused = admin.send(HOME, name="fine", description="x" * 2000)
    assert refused.status_code == 400
    assert found_in(r'role="alert"[^>]*>(.*?)</p>', refused.text).startswith("Description: ")
    assert 'value="fine"' in refused.text
    field = found_in(r'(<input id="description"[^>]*>)', refused.text)
    assert 'aria-invalid="true"' in field
    assert 'aria-describedby="refusal"' in field


def test_a_form_after_the_sign_in_is_told_that_it_was_not_done(site: Site) -> None:
    with site.visitor() as stranger:
        sent = stranger.http.post(HOME, data={"name": "late"})
        assert "If you sent a form, sign in and send it again." in stranger.told(sent)


def test_a_sign_in_begins_at_the_host_that_it_leads_back_to(site: Site, admin: Visitor) -> None:
    other = {"Host": "registry.example:5000"}
    asked = {"to": f"{HOME}?prefix=a"}
    with site.visitor() as stranger:
        moved = stranger.http.get("/console/sign-in", params=asked, headers=other)
        assert moved.status_code == 303
        assert "set-cookie" not in moved.headers
        there = httpx.URL(moved.headers["location"])
        assert str(there).startswith(f"{site.url}/console/sign-in?")
        assert there.params["to"] == asked["to"]
        begun = stranger.http.get(there)
        assert begun.headers["location"].startswith(f"{site.url}/v1/oauth/authorize?")
        behind_a_proxy = stranger.http.get(there, headers=other)  # it never comes by our name
        assert behind_a_proxy.headers["location"].startswith(f"{site.url}/v1/oauth/authorize?")


def test_who_has_signed_in_learns_the_version(site: Site, admin: Visitor) -> None:
    words = f"entrepot {version('entrepot')}</span></footer>"
    assert words in admin.http.get(HOME).text
    with site.visitor() as stranger:
        assert "<footer" not in stranger.http.get("/console/signed-out").text


def test_the_page_of_a_vast_manifest_is_bounded(site: Site, admin: Visitor) -> None:
    name, pusher = "refused/vast", site.pusher
    repository = pusher.repository(name)
    layer = pusher.blob(name, b"layer", OCI.layer)
    document = {
        "schemaVersion": 2,
        "mediaType": OCI.manifest,
        "config": pusher.blob(name, EMPTY, EMPTY_TYPE),
        "layers": [layer] * 1001,
        "annotations": {f"key-{number}": "value" for number in range(1101)},
    }
    image = pusher.image(name, [("child", 1, "COPY")])
    part = {key: image[key] for key in ("mediaType", "digest", "size")}
    attestation = {**part, "annotations": {"vnd.docker.reference.type": "attestation-manifest"}}
    page = admin.http.get(f"{HOME}/{repository}/images/{pusher.manifest(name, document)['digest']}")
    assert "and 801 layers more" in page.text
    assert "and 1,001 annotations more" in page.text
    assert page.text.count("<rect") < 300
    assert len(page.content) < 250_000
    index = pusher.index(name, [attestation] * 1000)
    page = admin.http.get(f"{HOME}/{repository}/images/{index['digest']}")
    assert "There is more than is shown." in page.text
    assert len(page.content) < 150_000
