"""``entrepot mirrors``: upstream registries whose images are cached under a prefix."""

from __future__ import annotations

import platform
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPResponse
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlencode

import msgspec

from cloudcore.command_failures import CommandFailure, Missing, Misuse, RequestRefused
from cloudcore.commands.invocation import Invocation
from cloudcore.commands.nouns import Cell, Command, Deletion, Noun, Option, Record, argument
from cloudcore.commands.progress import progress
from cloudcore.commands.records import printable, size_text
from registry.cli.client.api import ApiClient, client_of
from registry.cli.client.container_passwords import ContainerPassword, new_password
from registry.cli.client.references import parse_typed_reference
from registry.cli.client.sign_in import bearer
from registry.cli.client.transport import HttpRequest, Transport
from registry.oci.media_types import ACCEPT_MANIFESTS, DOCKER_MANIFEST_LIST, OCI_INDEX

_UPSTREAM: Final = Option("upstream_url", "such as https://quay.io", name="upstream", metavar="URL")
_FIELDS: Final = (
    Option(
        "upstream_prefix", "beginning of the names at the upstream that is left out here (none)"
    ),
    Option(
        "credential",
        "ask the upstream as NAME; its secret is typed without an echo, or read from the standard "
        "input",
        "credential",
        "username",
    ),
    Option("credential", "ask the upstream without a credential", "null", "no-credential"),
    Option("tag_ttl_seconds", "serve a tag for N seconds without a look upstream (3600)", "number"),
    Option(
        "negative_ttl_seconds", "remember for N seconds that there is no such image (60)", "number"
    ),
    Option(
        "keep_unpulled_days", "delete images that were not pulled for N days (0: never)", "limit"
    ),
    Option("max_bytes", "above N bytes, delete what was pulled longest ago (0: no limit)", "limit"),
    Option("enabled", "fetch from the upstream; else only what is cached is served", "boolean"),
)
_INDEXES: Final = (OCI_INDEX, DOCKER_MANIFEST_LIST)
_PART: Final = 1 << 18
_AT_ONCE: Final = 3
"""Number of blobs pulled at once, as by Docker."""
_SLOW_SECONDS: Final = 300
"""Timeout of a response; the upstream may be slow."""
_COLUMNS: Final = (
    "image",
    Cell("DIGEST", "digest", "digests"),
    Cell("MANIFESTS", "manifests", "number"),
    Cell("BLOBS", "blobs", "number"),
    "size_bytes",
    "failure",
)


def _test(run: Invocation) -> bool:
    """Test the upstream; return False if the test fails."""
    asked = None
    if "image" in run.values:
        repository, _, tag = run.values["image"].partition(":")
        asked = {"repository": repository, "tag": tag or "latest"}
    tested = run.client.call("POST", f"{run.path}/test", asked)
    how = "ok" if tested["ok"] else f"failed at {tested['stage']}"
    status = f", status {tested['http_status']}" if tested["http_status"] else ""
    run.say(f"{how} after {tested['latency_ms']} ms{status}: {tested['message']}", tested)
    return bool(tested["ok"])


T = TypeVar("T")


def _warm(run: Invocation) -> bool:
    client = client_of(run)
    wanted = platforms_of(run.values.get("platforms", ()), platform.machine())
    rules = list(client.rows(run.path, "pull_through_cache_rules"))
    images = [(text, mirrored_image(rules, text)) for text in run.values["images"]]
    password = new_password(client)
    rows = [_pull(client, password, text, image, wanted) for text, image in images]
    run.show_rows(rows, _COLUMNS, document={"images": rows})
    return not any(row["failure"] for row in rows)


def _pull(
    client: ApiClient,
    password: ContainerPassword,
    text: str,
    image: MirroredImage,
    platforms: frozenset[str] | None,
) -> Record:
    """Pull an image; return its table row, with the error message if the pull failed."""
    failure = None
    with progress() as show:
        puller = _Puller(client, password, image, lambda words: show(f"{text}: {words}"))
        try:
            puller.pull(platforms)
        except CommandFailure as error:
            failure = str(error)
    return {"image": text, **puller.found, "failure": failure}


WARM: Final = Command(
    verb="warm",
    words="pull images through the cache, and keep no copy here",
    is_on_list=True,
    options=(
        argument(
            "images",
            "under the prefix of a mirror, such as docker-hub/library/alpine:3",
            "texts",
            metavar="IMAGE",
        ),
        Option(
            "platforms",
            "of images for several; repeatable, or 'all' (Linux on this machine's architecture)",
            "many",
            "platform",
            metavar="OS/ARCH",
        ),
    ),
    run=_warm,
)


class MirroredImage(NamedTuple):
    """An image in a repository that a cache rule fills."""

    name: str
    """The repository's name, with the account's handle."""
    reference: str
    """A tag or a digest."""


def mirrored_image(rules: Sequence[Record], written: str) -> MirroredImage:
    """Parse an image such as ``docker-hub/library/alpine:3``, with or without host and account.

    Raise `Missing` if no rule covers the name; `Misuse` if the text is malformed.
    """
    reference = parse_typed_reference(written)
    for rule in rules:
        place = f"{rule['uri'].partition('/')[2]}/"  # the handle and the prefix
        host = rule["uri"].partition("/")[0]
        for before in (f"{host}/{place}", place, f"{rule['prefix']}/"):
            if reference.repository.startswith(before):
                name = place + reference.repository.removeprefix(before)
                return MirroredImage(name, reference.digest or reference.tag or "latest")
    raise Missing(
        f"no rule caches {printable(written)!r}; 'entrepot mirrors list' shows the prefixes there "
        "are, and what follows one is the image's name at the upstream"
    )


def platforms_of(texts: Sequence[str], machine: str) -> frozenset[str] | None:
    """Return the wanted platforms as ``os/architecture[/variant]``, or None for all.

    If `texts` is empty, the platform is Linux on this machine's architecture. Raise `Misuse` if a
    text is malformed.
    """
    if "all" in texts:
        return None
    for text in texts:
        if not all(text.split("/")) or text.count("/") not in (1, 2):
            raise Misuse(f"a platform is like linux/arm64, or all, not {printable(text)!r}")
    own = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}.get(machine, machine)
    return frozenset(texts) or frozenset({f"linux/{own}"})


def is_wanted(descriptor: Record, platforms: frozenset[str] | None) -> bool:
    """Return True if a child of an index is for one of `platforms` (None: any), or is an index."""
    if platforms is None or (
        descriptor.get("mediaType") in _INDEXES and not descriptor.get("platform")
    ):
        return True
    platform = descriptor.get("platform") or {}
    short = f"{platform.get('os')}/{platform.get('architecture')}"
    return short in platforms or f"{short}/{platform.get('variant')}" in platforms


class _Puller:
    """Pulls one image and discards its bytes, so that the registry caches it."""

    def __init__(
        self,
        client: ApiClient,
        password: ContainerPassword,
        image: MirroredImage,
        show: Callable[[str], None],
    ) -> None:
        self._transport = Transport(
            client.url, timeout_seconds=_SLOW_SECONDS, own_urls=client.own_urls
        )
        self._password = password
        self._image = image
        self._show = show
        self._bearer = ""
        self._size = 0
        self.found: dict[str, Any] = {"digest": None, "manifests": 0, "blobs": 0, "size_bytes": 0}

    def pull(self, platforms: frozenset[str] | None) -> None:
        """Pull the image for these platforms (None: all)."""
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
        """Pull the wanted manifests below an index, each once; return them."""
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
            if response.length:  # a partial `read` does not raise at a lost connection
                raise CommandFailure(
                    f"{digest} was cut off before its end; 'entrepot mirrors list' shows whether "
                    "the upstream is at fault, and the same command goes on with the rest"
                )

        self._get(f"blobs/{digest}", read)

    def _count(self, size: int) -> None:
        self._size += size
        self._show(f"{self.found['blobs']} blobs, {size_text(self._size)}")

    def _get(self, path: str, read: Callable[[HTTPResponse], T]) -> T:
        """GET a path of ``/v2`` with a token; after a 401, retry once with a new token."""
        target = f"/v2/{self._image.name}/{path}"

        def send(token: str) -> T:
            headers = {**bearer(token), "Accept": ACCEPT_MANIFESTS}
            return self._transport.read(HttpRequest("GET", target, headers), read)

        token = self._bearer or self._token()
        try:
            return send(token)
        except RequestRefused as error:
            if error.status != 401:
                raise
        return send(self._token())

    def _token(self) -> str:
        """Return a new token to pull the image with; tokens last for minutes only."""
        pair = f"{self._password.username}:{self._password.password}".encode()
        scope = urlencode({"scope": f"repository:{self._image.name}:pull"})
        headers = {"Authorization": f"Basic {b64encode(pair).decode()}"}
        answer = self._transport.send(HttpRequest("GET", f"/v2/token?{scope}", headers))
        self._bearer = str(answer["token"])
        return self._bearer


def _descriptors(manifest: dict[str, Any], field: str) -> Iterator[dict[str, Any]]:
    found = manifest.get(field)
    for each in found if isinstance(found, list) else ():
        if isinstance(each, dict) and "digest" in each:
            yield each


MIRRORS: Final = Noun(
    noun="mirrors",
    words="cache the images of other registries under a prefix",
    path="/v1/pull-through-cache-rules",
    many="pull_through_cache_rules",
    name="prefix",
    singular="mirror",
    metavar="MIRROR",
    columns=(
        "prefix",
        Cell("UPSTREAM", "upstream_url"),
        "enabled",
        Cell("HITS", "stats.hits", "number"),
        Cell("MISSES", "stats.misses", "number"),
        "stats.saved_bytes",
        "stats.cached_bytes",
        Cell("FAULTS", shown=lambda rule: [each["code"] for each in rule["faults"]]),
        "last_success_at",
    ),
    create=(
        argument("prefix", "such as docker-hub, or mirrors/quay"),
        _UPSTREAM._replace(is_required=True),
        *_FIELDS,
    ),
    created="Created {prefix}; pull images of {upstream_url} as {uri}/…",
    update=(
        _UPSTREAM._replace(words="another one; give --username or --no-credential too"),
        *_FIELDS,
    ),
    delete=Deletion(
        words="delete a mirror; what it has cached stays",
        question="Delete the rule of {prefix}? Nothing new is cached then.",
        said="Deleted the rule of {prefix}; what it has cached stays",
    ),
    commands=(
        Command(
            verb="test",
            words="ask the upstream whether it answers; exit 1 if it does not",
            options=(
                argument(
                    "image",
                    "ask for this image of the upstream, such as library/alpine:3",
                    metavar="IMAGE[:TAG]",
                    is_optional=True,
                ),
            ),
            run=_test,
        ),
        WARM,
    ),
)

COMMANDS: Final = (MIRRORS,)
