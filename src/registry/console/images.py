"""The images of a repository, and all that is known of one."""

from __future__ import annotations

from typing import Any, Final

from registry.console import index_deletion, referrers
from registry.console.contents import (
    Descriptor,
    layers_of,
    platforms_of,
    read_configuration,
    read_manifest,
)
from registry.console.messages import Response
from registry.console.of_repository import (
    PATH,
    api_path,
    page_path,
    read_repository,
    unless_refused,
)
from registry.console.routing import Parameters, Route
from registry.console.visit import Visit

_IMAGE: Final = f"{PATH}/images/{{digest}}"
_PAGE: Final = 25
_CHILDREN: Final = 50
_LAYERS: Final = 200
_ANNOTATIONS: Final = 100
"""A manifest of 4 MiB may list so much more that its page would hold the process up."""
_STATUSES: Final = ("tagged", "untagged", "any")
_CONFIGURATIONS: Final = frozenset(
    {
        "application/vnd.oci.image.config.v1+json",
        "application/vnd.docker.container.image.v1+json",
    }
)
"""Types of what is to be run; other artifacts are told apart by theirs."""


async def list_images(visit: Visit, parameters: Parameters) -> Response:
    """Show the images, the newest first, with what they run on.

    Those without a tag, mostly parts of others, are shown only when asked for.
    """
    query = visit.request.query
    status = query.get("tag_status", "")
    status = status if status in _STATUSES else "tagged"
    prefix = query.get("prefix", "").strip()
    repository = await read_repository(visit, parameters)
    found = await visit.api.get(
        f"{api_path(parameters)}/images",
        tag_status=status,
        tag_prefix=prefix,
        marker=query.get("marker"),
        limit=_PAGE,
    )
    images = [
        (image, _kind(image), await _platforms(visit, repository, image))
        for image in found["images"]
    ]
    return visit.page(
        "images.html",
        repository=repository,
        images=images,
        meta=found["meta"],
        tag_status=status,
        prefix=prefix,
        registry_url=visit.house.auth_url,
    )


async def _platforms(visit: Visit, repository: dict[str, Any], image: dict[str, Any]) -> list[str]:
    if image["is_index"]:
        manifest = await unless_refused(read_manifest(visit, repository["id"], image["digest"]))
        return list(dict.fromkeys(platforms_of(manifest))) if manifest else []
    configuration = await read_configuration(visit, repository, image)
    return [configuration.platform] if configuration else []


async def show_image(visit: Visit, parameters: Parameters) -> Response:
    """Show an image."""
    return await image_page(visit, parameters)


async def image_page(
    visit: Visit, parameters: Parameters, status: int = 200, complaint: str = ""
) -> Response:
    """Return the page of an image; the complaint is about the form of pins."""
    api = visit.api
    images_path = f"{api_path(parameters)}/images"
    repository = await read_repository(visit, parameters)
    image = (await api.get(f"{images_path}/{parameters['digest']}"))["image"]
    digest = image["digest"]
    path = f"{images_path}/{digest}"
    manifest = await read_manifest(visit, repository["id"], digest)
    configuration = await read_configuration(visit, repository, image)
    tree, is_whole = await referrers.read_tree(visit, images_path, digest)
    children = manifest.manifests or []
    built_in = _built_in(children)
    tree += built_in[:_CHILDREN]
    tree += await referrers.read_tagged(visit, f"{api_path(parameters)}/tags", digest)
    pins = await unless_refused(api.get(f"{path}/pins"))
    storage = await unless_refused(api.get(f"{path}/storage"))
    return visit.page(
        "image.html",
        status,
        repository=repository,
        image=image,
        kind=_kind(image),
        configuration=configuration,
        layers=layers_of(manifest, configuration),
        most_layers=_LAYERS,
        annotations=list((manifest.annotations or {}).items()),
        most_annotations=_ANNOTATIONS,
        platforms=[
            (child, await _size(visit, images_path, child))
            for child in children[:_CHILDREN]
            if not child.is_attestation
        ],
        hidden_children=max(0, len(children) - _CHILDREN),
        referrers=tree,
        are_all_referrers=is_whole and len(built_in) <= _CHILDREN,
        pins=pins and pins["pins"],
        storage=storage and storage["storage"],
        plan=storage and await index_deletion.read_plan(visit, repository, image),
        parts_of={child.digest: _part(child) for child in children},
        complaint=complaint,
    )


def _kind(image: dict[str, Any]) -> str:
    if image["is_index"]:
        return "Multi-platform"
    named = image.get("artifact_type")
    return "Image" if named is None or named in _CONFIGURATIONS else referrers.kind_of(named)


def _part(child: Descriptor) -> str:
    """Return what a child is to its index."""
    return "Attestation" if child.is_attestation else str(child.platform or "")


def _built_in(children: list[Descriptor]) -> list[referrers.Referrer]:
    """Return the attestations that BuildKit keeps beside the platforms."""
    return [
        referrers.Referrer(
            "Attestation",
            f"part of the index, about {each.about or 'one of its images'}",
            {"digest": each.digest, "size_bytes": each.size},
        )
        for each in children
        if each.is_attestation
    ]


async def _size(visit: Visit, images_path: str, child: Descriptor) -> int | None:
    """Return what a child of an index takes; None when it is not here."""
    found = await unless_refused(visit.api.get(f"{images_path}/{child.digest}"))
    return None if found is None else int(found["image"]["size_bytes"])


async def delete_image(visit: Visit, parameters: Parameters) -> Response:
    """Delete an image with its tags."""
    force = "true" if "force" in visit.request.form else None
    path = f"{api_path(parameters)}/images/{parameters['digest']}"
    await visit.api.change("DELETE", path, force=force)
    return visit.go(f"{page_path(parameters)}/deleted", "image-deleted")


ROUTES: Final = [
    Route("GET", PATH, list_images),
    Route("GET", _IMAGE, show_image),
    Route("POST", f"{_IMAGE}/delete", delete_image),
]
