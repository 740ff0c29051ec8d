"""An upstream registry of limited bandwidth: ``python -m benchmarks.slow_upstream``.

It prints its port, and counts how often each blob is fetched (``GET /counts``).
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections import Counter
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple

REPOSITORY: Final = "team/app"
MANIFEST_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"
_UNIT_BYTES: Final = 64 * 1024


class Pace:
    """Lets so many bytes a second pass, for all connections together."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._lock = threading.Lock()
        self._free_at = 0.0

    def wait(self, count: int) -> None:
        """Wait until `count` bytes may be sent."""
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now - 0.01) + count / self._rate
            pause = self._free_at - now
        if pause > 0:
            time.sleep(pause)


def image(size: int, seed: int, count: int = 6) -> dict[str, bytes]:
    """Return the blobs of an image of `count` layers, and its manifest, by digest; that last."""
    unit = sha256(b"%d" % seed).digest() * 32768
    length = size // count
    repeated = unit * (length // len(unit) + 1)
    layers = [(b"%032d" % (seed * 100 + number) + repeated)[:length] for number in range(count)]
    blobs = [b'{"architecture":"amd64","os":"linux","seed":%d}' % seed, *layers]
    named = {f"sha256:{sha256(blob).hexdigest()}": blob for blob in blobs}
    kinds = ["config.v1+json", *["layer.v1.tar"] * count]
    listed = [
        {"mediaType": f"application/vnd.oci.image.{kind}", "digest": digest, "size": len(blob)}
        for kind, (digest, blob) in zip(kinds, named.items(), strict=True)
    ]
    document = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": listed[0],
        "layers": listed[1:],
    }
    manifest = json.dumps(document).encode()
    return named | {f"sha256:{sha256(manifest).hexdigest()}": manifest}


class Found(NamedTuple):
    """What a path names."""

    status: int
    body: bytes
    media_type: str = "application/json"
    digest: str = ""


class Content:
    """Images with the tags 0, 1, …, of `size` bytes and so many layers each."""

    def __init__(self, size: int, seeds: int, layers: int) -> None:
        self.images = [image(size, seed, layers) for seed in range(seeds)]
        self._content = {digest: data for each in self.images for digest, data in each.items()}
        self._manifests = {str(tag): list(each)[-1] for tag, each in enumerate(self.images)}
        self._manifests |= {digest: digest for digest in self._manifests.values()}
        self._counts = Counter[str]()

    def find(self, method: str, path: str) -> Found:
        """Return what a path names; count blobs that are fetched."""
        if path == "/counts":
            return Found(200, json.dumps(self._counts).encode())
        if path == "/v2/":
            return Found(200, b"{}")
        found = re.fullmatch(rf"/v2/{REPOSITORY}/(manifests|blobs)/([^/?]+)", path)
        kind, reference = found.groups() if found else ("", "")
        is_blob = kind == "blobs"
        digest = reference if is_blob else self._manifests.get(reference, "")
        if digest not in self._content:
            return Found(404, b'{"errors":[]}')
        if is_blob and method == "GET":
            self._counts[digest] += 1
        media_type = "application/octet-stream" if is_blob else MANIFEST_TYPE
        return Found(200, self._content[digest], media_type, digest)


def main(size: int, rate: float, seeds: int, layers: int) -> None:
    """Serve `seeds` images of `size` bytes each, at `rate` bytes a second."""
    content, pace = Content(size, seeds, layers), Pace(rate)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 0

        def log_message(self, *_: Any) -> None:  # noqa: ANN401
            pass

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            found = content.find(self.command, self.path)
            self.send_response(found.status)
            self.send_header("Content-Type", found.media_type)
            self.send_header("Content-Length", str(len(found.body)))
            if found.digest:
                self.send_header("Docker-Content-Digest", found.digest)
            self.end_headers()
            if self.command == "HEAD":
                return
            view = memoryview(found.body)
            for start in range(0, len(view), _UNIT_BYTES):
                part = view[start : start + _UNIT_BYTES]
                if found.digest:
                    pace.wait(len(part))
                self.wfile.write(part)

    ThreadingHTTPServer.request_queue_size = 128
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        print(json.dumps({"port": server.server_port, "images": [list(i) for i in content.images]}))
        sys.stdout.flush()
        server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), *map(int, sys.argv[3:5]))
