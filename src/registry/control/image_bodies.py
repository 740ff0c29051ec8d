"""The body of an image in answers on ``/v1``, with its configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import UNSET, UnsetType

from cloudcore.resource_names import Uuid
from cloudcore.web.answers import answer_of
from cloudcore.web.pagination import PageMeta
from cloudcore.wire import RFC3339, ResponseBody, or_absent
from registry.control.visible_repositories import PATH
from registry.metadata.images.details import ImageRow
from registry.oci.image_contents import Configuration, Execution


class BuildStep(ResponseBody):
    """A step of the build that made an image."""

    created: str | None
    created_by: str
    comment: str
    empty_layer: bool
    """True if the step made no layer."""


class ImageConfiguration(ResponseBody):
    """The configuration of an image (OCI image-spec, "Image Configuration"), as it was pushed.

    The registry checks none of its values: `created` may be no date.
    """

    platform: str
    """The platform the image runs on, such as ``linux/arm/v7``."""
    created: str | None
    author: str
    user: str
    working_dir: str
    entrypoint: Sequence[str]
    cmd: Sequence[str]
    env: Sequence[str]
    """As ``NAME=value``."""
    exposed_ports: Sequence[str]
    """Such as ``8080/tcp``."""
    labels: Mapping[str, str]
    history: Sequence[BuildStep]
    """Build steps, oldest first."""


def configuration_answer(found: Configuration) -> ImageConfiguration:
    """Return the answer for a configuration."""
    execution = found.config or Execution()
    return answer_of(
        ImageConfiguration,
        execution,
        platform=found.platform,
        created=found.created,
        author=found.author,
        entrypoint=execution.entrypoint or [],
        cmd=execution.cmd or [],
        env=execution.env or [],
        exposed_ports=list(execution.exposed_ports or {}),
        labels=execution.labels or {},
        history=[answer_of(BuildStep, step) for step in found.history or []],
    )


IMAGES: Final = f"{PATH}/images"
IMAGE: Final = f"{IMAGES}/{{digest:str}}"


class ImageAnswer(ResponseBody):
    """An image: a manifest with its tags."""

    id: Uuid
    digest: str
    """The sha256 of the manifest's bytes."""
    media_type: str
    tags: Sequence[str]
    manifest_size_bytes: int
    size_bytes: int
    """The sum of the distinct blobs that it references."""
    is_index: bool
    pushed_at: RFC3339
    last_pulled_at: RFC3339 | None
    """To the minute. A HEAD does not count; clients that have the image may send nothing else."""
    artifact_type: str | UnsetType = UNSET
    config_digest: str | UnsetType = UNSET
    """Absent on a multi-platform index."""
    subject: str | UnsetType = UNSET
    """Digest of the image that this one refers to (`subject` of its manifest)."""
    platforms: Sequence[str] | UnsetType = UNSET
    """Platforms such as ``linux/amd64``; only in a list with `include`."""
    attached_types: Sequence[str] | UnsetType = UNSET
    """Artifact types of what is attached to it, of the newest 20. It and the next three are there
    only with ``include=relations``."""
    attached_tags: Sequence[str] | UnsetType = UNSET
    """Tags made of its digest, by which older clients attach artifacts: ``sha256-….sig``."""
    is_pinned: bool | UnsetType = UNSET
    listed_by: Sequence[str] | UnsetType = UNSET
    """Digests of indexes that list it, 20 at most. Also with ``include=configuration``."""
    configuration: ImageConfiguration | UnsetType | None = UNSET
    """Only with ``include=configuration``; null if there is none that can be read."""


class ManyImages(ResponseBody):
    """A page of images."""

    images: Sequence[ImageAnswer]
    meta: PageMeta


def image_answer(image: ImageRow) -> ImageAnswer:
    """Return the answer for an image."""
    subject = or_absent(image.subject_digest)
    return answer_of(ImageAnswer, image, subject=subject, is_index=bool(image.is_index))
