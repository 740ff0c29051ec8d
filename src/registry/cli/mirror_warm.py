"""``entrepot mirror warm``: pull images through the cache, so that later pulls find them there."""

from __future__ import annotations

import argparse
import platform
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPResponse
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import msgspec

from registry.cli.api import ApiClient, open_client
from registry.cli.container_passwords import ContainerPassword, new_password
from registry.cli.failure import FAILED, CommandFailure
from registry.cli.listing import show_rows
from registry.cli.mirror_rules import (
    RULE,
    MirroredImage,
    is_wanted,
    mirrored_image,
    platforms_of,
)
from registry.cli.options import Verbs, add_verb
from registry.cli.output import TABLE, column, size_text, write_record
from registry.cli.progress import progress
from registry.cli.transport import RequestRefused, Transport
from registry.oci.media_types import (
    DOCKER_MANIFEST,
    DOCKER_MANIFEST_LIST,
    OCI_INDEX,
    OCI_MANIFEST,
)

T = TypeVar("T")

_ACCEPT: Final = f"{OCI_INDEX}, {OCI_MANIFEST}, {DOCKER_MANIFEST_LIST}, {DOCKER_MANIFEST}"
_PART: Final = 1 << 18
_AT_ONCE: Final = 3
"""Blobs that are pulled at once, as Docker does."""
_SLOW_SECONDS: Final = 300
"""How long an answer may take: the upstream may be slow."""
_COLUMNS: Final = (
    column("IMAGE", "image"),
    column("DIGEST", "digest", has_digests=True),
    column("MANIFESTS", "manifests", is_number=True),
    column("BLOBS", "blobs", is_number=True),
    column("SIZE", "size_bytes", size_text, is_number=True),
    column("FAILURE", "failure"),
)


def add_parser(verbs: Verbs) -> None:
    """Add ``warm`` to the commands of mirror."""
    parser = add_verb(verbs, "warm", _warm, "pull images through the cache, and keep no copy here")
    parser.add_argument(
        "images",
        metavar="IMAGE",
        nargs="+",
        help="under the prefix of a rule, such as docker-hub/library/alpine:3",
    )
    parser.add_argument(
        "--platform",
        action="append",
        default=[],
        dest="platforms",
        metavar="OS/ARCH",
        help="of images for several; repeatable, or 'all' (Linux on this machine's architecture)",
    )


def _warm(options: argparse.Namespace) -> int:
    client = open_client(options)
    wanted = platforms_of(options.platforms, platform.machine())
    rules = list(client.rows(RULE.path, RULE.fields))
    images = [(text, mirrored_image(rules, text)) for text in options.images]
    password = new_password(client)
    rows = []
    for text, image in images:
        with progress() as show:
            puller = _Puller(client, password, image, partial(_show, show, text))
            failure = None
            try:
                puller.pull(wanted)
            except CommandFailure as error:
                failure = str(error)
        rows.append({"image": text, **puller.found, "failure": failure})
    if options.output == TABLE:
        show_rows(options, rows, _COLUMNS)
    else:
        write_record({"images": rows}, options.output)
    return FAILED if any(row["failure"] for row in rows) else 0


def _show(show: Callable[[str], None], image: str, words: str) -> None:
    show(f"{image}: {words}")


class _Puller:
    """Pulls one image, and throws it away."""

    def __init__(
        self,
        client: ApiClient,
        password: ContainerPassword,
        image: MirroredImage,
        show: Callable[[str], None],
    ) -> None:
        self._transport = Transport(client.url, timeout_seconds=_SLOW_SECONDS)
        self._password = password
        self._image = image
        self._show = show
        self._bearer = ""
        self._size = 0
        self.found: dict[str, Any] = {
            "digest": None,
            "manifests": 0,
            "blobs": 0,
            "size_bytes": 0,
        }

    def pull(self, platforms: frozenset[str] | None) -> None:
        """Pull the image for these platforms, or for all if None."""
        top = self._manifest(self._image.reference)
        manifests = [top, *self._below(top, platforms)]
        if top.get("manifests") and all("manifests" in each for each in manifests):
            raise CommandFailure("the image is for other platforms; --platform all pulls them")
        blobs = {
            str(each["digest"])
            for manifest in manifests
            for each in (
                *_descriptors(manifest, "layers"),
                *([manifest["config"]] if isinstance(manifest.get("config"), dict) else ()),
            )
            if not each.get("urls")
        }
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            for _ in threads.map(self._blob, sorted(blobs)):
                self.found["blobs"] += 1
        self.found["size_bytes"] = self._size

    def _below(
        self, index: dict[str, Any], platforms: frozenset[str] | None
    ) -> list[dict[str, Any]]:
        """Pull all that is wanted under an index, each manifest once; return it."""
        found: dict[str, dict[str, Any]] = {}
        waiting = [index]
        while waiting:
            for each in _descriptors(waiting.pop(), "manifests"):
                digest = str(each["digest"])
                if digest not in found and is_wanted(each, platforms):
                    found[digest] = self._manifest(digest)
                    waiting.append(found[digest])
        return list(found.values())

    def _manifest(self, reference: str) -> dict[str, Any]:
        def read(response: HTTPResponse) -> tuple[str | None, bytes]:
            return response.headers.get("Docker-Content-Digest"), response.read()

        digest, body = self._get(f"manifests/{reference}", read)
        self.found["digest"] = self.found["digest"] or digest
        self.found["manifests"] += 1
        self._count(len(body))
        try:
            return msgspec.json.decode(body, type=dict[str, Any])
        except msgspec.DecodeError:
            raise CommandFailure(f"{reference} is no manifest") from None

    def _blob(self, digest: str) -> None:
        def read(response: HTTPResponse) -> None:
            while part := response.read(_PART):
                self._count(len(part))
            if response.length:  # `read` of a part does not raise for it
                raise CommandFailure(
                    f"{digest} was cut off before its end; 'entrepot mirror list' shows whether "
                    "the upstream is at fault, and the same command goes on with the rest"
                )

        self._get(f"blobs/{digest}", read)

    def _count(self, size: int) -> None:
        self._size += size
        self._show(f"{self.found['blobs']} blobs, {size_text(self._size)}")

    def _get(self, path: str, read: Callable[[HTTPResponse], T]) -> T:
        """Read an answer of ``/v2`` with a token; on 401, once more with a new one."""
        target = f"/v2/{self._image.name}/{path}"
        for bearer in (self._bearer or self._token(), None):
            headers = {"Authorization": f"Bearer {bearer or self._token()}", "Accept": _ACCEPT}
            try:
                return self._transport.read("GET", target, headers, None, read)
            except RequestRefused as error:
                if error.status != 401 or bearer is None:
                    raise
        raise AssertionError

    def _token(self) -> str:
        """Return a new token to pull the image with; tokens last for minutes only."""
        pair = f"{self._password.username}:{self._password.password}".encode()
        scope = urlencode({"scope": f"repository:{self._image.name}:pull"})
        headers = {"Authorization": f"Basic {b64encode(pair).decode()}"}
        self._bearer = str(self._transport.send("GET", f"/v2/token?{scope}", headers)["token"])
        return self._bearer


def _descriptors(manifest: dict[str, Any], field: str) -> Iterator[dict[str, Any]]:
    found = manifest.get(field)
    for each in found if isinstance(found, list) else ():
        if isinstance(each, dict) and "digest" in each:
            yield each
