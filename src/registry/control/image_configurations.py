"""The configuration of an image as ``/v1`` returns it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cloudcore.wire import ResponseBody
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
    return ImageConfiguration(
        platform=found.platform,
        created=found.created,
        author=found.author,
        user=execution.user,
        working_dir=execution.working_dir,
        entrypoint=execution.entrypoint or [],
        cmd=execution.cmd or [],
        env=execution.env or [],
        exposed_ports=list(execution.exposed_ports or {}),
        labels=execution.labels or {},
        history=[
            BuildStep(
                created=step.created,
                created_by=step.created_by,
                comment=step.comment,
                empty_layer=step.empty_layer,
            )
            for step in found.history or []
        ],
    )
