"""The images of a repository: list, show, pin and delete them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from litestar import get, post
from litestar.response import Response

from cloudcore.clock import MICROSECONDS
from cloudcore.wire import rfc3339
from registry.console.addresses import IMAGE, REPOSITORY
from registry.console.browser_request import is_whole_number
from registry.console.control_plane import unless_refused
from registry.console.form_refusals import NO_REFUSAL, FormPage, FormRefusal, WrongInput
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.pages.repositories import image_deletion, image_rows
from registry.console.pages.repositories.image_contents import (
    contents_of,
    layers_of,
    raw_document,
    read_manifest,
)
from registry.console.pages.repositories.image_rows import (
    fold,
    is_attached_tag,
    kind_of_image,
    natural_order,
)
from registry.console.pages.repositories.repositories import api_path, path_of, read_repository
from registry.oci.image_contents import ContentDescriptor
from registry.oci.media_types import MANIFEST_TYPES

_CHILDREN: Final = 50
_LAYERS: Final = 200
_ANNOTATIONS: Final = 100
"""These three limit what is shown of a manifest: showing all of 4 MiB would take seconds."""
_STATUSES: Final = ("tagged", "untagged", "any")


class IndexEntry(NamedTuple):
    """An entry of an index."""

    descriptor: ContentDescriptor
    kind: Literal["image", "blob", "absent"]
    """``absent``: an image that its repository does not have."""
    size: int | None
    """In bytes; None if it is not known."""


@get(REPOSITORY)
async def list_images(page: InjectedPage) -> PageResponse:
    """Show the images with their tags, newest first; untagged images only on request.

    Children of indexes, signatures and other attached artifacts are folded into the rows of their
    images, unless the query has ``all``.
    """
    query = page.query
    status = query.get("tag_status", "")
    status = status if status in _STATUSES else "tagged"
    prefix = query.get("prefix", "").strip()
    repository = await read_repository(page)
    found = await page.api.get(
        f"{api_path(page)}/images",
        tag_status=status,
        tag_prefix=prefix,
        marker=page.marker,
        limit=25,
        include="relations",
    )
    folded = fold(found["images"], everything="all" in query)
    return page.show(
        "images.html",
        repository=repository,
        folded=folded,
        everything="all" in query,
        meta=found["meta"],
        tag_status=status,
        prefix=prefix,
        registry_url=page.console.settings.url,
    )


async def _image_page(page: PageRequest, refusal: FormRefusal = NO_REFUSAL) -> PageResponse:
    """Return the page of an image; `refusal` is about the form for pins."""
    api = page.api
    images_path = f"{api_path(page)}/images"
    repository = await read_repository(page)
    found = await api.get(f"{images_path}/{page.parameters['digest']}", include="configuration")
    image = found["image"]
    digest, configuration = image["digest"], image["configuration"]
    kind = kind_of_image(image)
    path = f"{images_path}/{digest}"
    document = await read_manifest(page, repository["id"], digest)
    manifest = contents_of(document)
    tree, is_whole = await image_rows.read_tree(page, images_path, digest)
    children = manifest.manifests or []
    built_in = _built_in(children)
    tree += built_in[:_CHILDREN]
    tree += await image_rows.read_tagged(page, f"{api_path(page)}/tags", digest)
    pins = await unless_refused(api.get(f"{path}/pins"))
    storage = await unless_refused(api.get(f"{path}/storage"))
    preview = await image_deletion.read_preview(page, images_path, image)
    sizes = _sizes(preview)
    return page.show(
        "image.html",
        repository=repository,
        image=image,
        kind=kind,
        configuration=configuration,
        layers=layers_of(manifest, configuration),
        most_layers=_LAYERS,
        annotations=list((manifest.annotations or {}).items()),
        most_annotations=_ANNOTATIONS,
        entries=[
            await _entry(page, images_path, child, sizes)
            for child in children[:_CHILDREN]
            if not child.is_attestation
        ],
        hidden_children=max(0, len(children) - _CHILDREN),
        referrers=tree,
        are_all_referrers=is_whole and len(built_in) <= _CHILDREN,
        pins=pins and pins["pins"],
        storage=storage and storage["storage"],
        preview=preview,
        reasons=image_deletion.REASONS,
        parts_of={child.digest: _part(child) for child in children},
        refusal=refusal,
        manifest=raw_document(document),
        pull=pull_command(image, kind, repository["uri"]),
    )


def pull_command(image: Mapping[str, Any], kind: str, uri: str) -> str:
    """Return a pull command for an image, by its first tag or else by its digest."""
    tag = next((tag for tag in natural_order(image["tags"]) if not is_attached_tag(tag)), None)
    if kind == "Helm chart" and tag is not None:
        return f"helm pull oci://{uri} --version {tag}"
    tool = "docker" if kind in ("Image", "Multi-platform") else "oras"
    return f"{tool} pull {uri}{f':{tag}' if tag else '@' + image['digest']}"


@get(f"{IMAGE}/manifest")
async def send_manifest(page: InjectedPage) -> PageResponse:
    """Send the exact bytes of the manifest as a file."""
    digest = page.parameters["digest"]
    content = await read_manifest(page, page.parameters["repository"], digest)
    name = digest.partition(":")[2][:12]
    headers = {
        "content-type": "application/octet-stream",
        "content-disposition": f'attachment; filename="manifest-{name}.json"',
    }
    return Response(content, headers=headers)


def _part(child: ContentDescriptor) -> str:
    """Return the platform of an index's child, or ``Attestation``."""
    return "Attestation" if child.is_attestation else str(child.platform or "")


def _built_in(children: list[ContentDescriptor]) -> list[image_rows.AttachedArtifact]:
    """Return the attestations among an index's children, which BuildKit adds."""
    return [
        image_rows.AttachedArtifact(
            "Attestation",
            f"part of the index, about {each.about or 'one of its images'}",
            {"digest": each.digest, "size_bytes": each.size},
        )
        for each in children
        if each.is_attestation
    ]


def _sizes(preview: dict[str, Any] | None) -> dict[str, int]:
    """Map digest to size in bytes, for all images in a deletion preview."""
    if preview is None:
        return {}
    images = [*preview["deleted"], *(each["image"] for each in preview["kept"])]
    return {image["digest"]: image["size_bytes"] for image in images}


async def _entry(
    page: PageRequest, images_path: str, child: ContentDescriptor, sizes: dict[str, int]
) -> IndexEntry:
    """Return an entry of an index: an image, a blob, or an image that the repository lacks."""
    size = sizes.get(child.digest)
    if size is None:
        found = await unless_refused(page.api.get(f"{images_path}/{child.digest}"))
        size = None if found is None else int(found["image"]["size_bytes"])
    if size is not None:
        return IndexEntry(child, "image", size)
    if child.media_type not in MANIFEST_TYPES:
        return IndexEntry(child, "blob", child.size)
    return IndexEntry(child, "absent", None)


@post(f"{IMAGE}/delete")
async def delete_image(page: InjectedPage) -> PageResponse:
    """Delete an image with its tags."""
    force = "true" if "force" in page.form else None
    digest = page.parameters["digest"]
    outcome = await page.api.change("DELETE", f"{api_path(page)}/images/{digest}", force=force)
    here = path_of(page)
    undo = here.image(digest, "restore")
    if outcome is not None:  # there are indexes that lack the image now
        deleted = {"deleted": [outcome["deleted"]]}
        return await image_deletion.show_outcome(page, deleted, undo)
    return page.go(
        here.tab("deleted"),
        "The image was deleted. What can be restored is listed here.",
        undo,
        undo_action="RestoreImage",
    )


_DAY: Final = 24 * 3600 * MICROSECONDS
_MOST_DAYS: Final = 3650
_NO_DAYS: Final = f"A pin lasts 1 to {_MOST_DAYS} days, or has no end."
_NO_NAME: Final = "A pin has a name of small letters, digits, '.', '_' and '-'."


_IMAGE: Final = FormPage(IMAGE, _image_page)
show_image = _IMAGE.get()


@_IMAGE.form("/pins")
async def put_pin(page: InjectedPage) -> PageResponse:
    """Pin an image for some days, or until the pin is removed."""
    days = page.text("days")
    if days and not (is_whole_number(days, 4) and 1 <= int(days) <= _MOST_DAYS):
        raise WrongInput("days", _NO_DAYS)
    name = page.text("name")
    if not name or "/" in name:
        raise WrongInput("name", _NO_NAME)
    end = rfc3339(page.now + int(days) * _DAY) if days else None
    await page.api.change("PUT", _pin(page, name), {"expires_at": end})
    return _shown(page, "The image is pinned: no lifecycle rule expires it.")


@post(f"{IMAGE}/pins/{{pin:str}}/delete")
async def delete_pin(page: InjectedPage) -> PageResponse:
    """Remove a pin."""
    await page.api.change("DELETE", _pin(page, page.parameters["pin"]))
    return _shown(page, "The pin was taken away.")


def _pin(page: PageRequest, name: str) -> str:
    return f"{api_path(page)}/images/{page.parameters['digest']}/pins/{name}"


def _shown(page: PageRequest, said: str) -> PageResponse:
    return page.go(path_of(page).image(page.parameters["digest"]), said)
