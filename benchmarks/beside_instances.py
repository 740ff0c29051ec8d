"""Pulls of one account beside hostile instances: ``python -m benchmarks.beside_instances``.

A registry with two workers, whose machine runs instances by ``runc`` (root, and Debian's packages
of it and of busybox-static). Four clients of one account pull manifests and blobs, alone and then
beside instances of another account that do their worst: fork, take memory, fill their disk, and
write output without end. The exit status is 1 if the 99th percentile of the pulls beside them is
above 100 ms.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.beside_loads import MANIFEST, World
from benchmarks.load import percentile
from tests.busybox_images import BUSYBOX, busybox_image, push_as
from tests.live_signed_in import serving

LIMIT_MS: Final = 100.0
PULLERS: Final = 4
HOSTILE: Final[Mapping[str, Sequence[str]]] = {
    # awk goes on where a shell ends: when there is no process left for it.
    "fork bomb": ("busybox", "awk", 'BEGIN { for (;;) system("while :; do :; done &") }'),
    "memory hog": ("sh", "-c", "while :; do tail -c 9999999999 /dev/zero; done"),
    "disk filler": ("sh", "-c", "while :; do cat /dev/zero > /srv/full; rm /srv/full; done"),
    "output": ("yes",),
}
_PAUSE_SECONDS: Final = 0.002
_WAIT_SECONDS: Final = 180
_SETTINGS: Final[Mapping[str, str]] = {
    "ENTREPOT_COMPUTE_DRIVER": "runc",
    "ENTREPOT_COMPUTE_DISK_MB": "16",
}
_TRUST: Final = {
    "version": "1",
    "statements": [{"effect": "allow", "principals": ["crn:iam:::service/compute"]}],
}
_PULL: Final = {
    "version": "1",
    "statements": [
        {
            "effect": "allow",
            "actions": ["registry:GetAuthorizationToken", "registry:PullImage"],
            "resources": ["*"],
        }
    ],
}


class Measured(NamedTuple):
    """How long pulls took."""

    p50_ms: float
    p99_ms: float
    most_ms: float
    pulls: int

    def __str__(self) -> str:
        return f"{self.p50_ms:8.1f} {self.p99_ms:8.1f} {self.most_ms:8.1f} {self.pulls:7}"


class Neighbours:
    """A served install: acme runs instances, and its neighbour pulls."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._call = world.signed_in.call
        self._paths = self._stored()

    def measure(self, seconds: float) -> Measured:
        """Let the neighbour pull for some seconds."""
        taken: list[float] = []
        end = time.monotonic() + seconds

        def pull(number: int) -> None:
            connection = self._world.neighbour()
            for turn in range(number, 1 << 30):
                if time.monotonic() > end:
                    break
                time.sleep(_PAUSE_SECONDS)
                path = self._paths[turn % len(self._paths)]
                began = time.perf_counter()
                connection.send(connection.request("GET", path, f"Accept: {MANIFEST}"))
                head = connection.head()
                connection.discard(head)
                assert head.status == 200, head
                taken.append(time.perf_counter() - began)
            connection.close()

        threads = [threading.Thread(target=pull, args=(number,)) for number in range(PULLERS)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        ordered = sorted(1000 * each for each in taken)
        return Measured(
            statistics.median(ordered), percentile(ordered, 99), ordered[-1], len(ordered)
        )

    @contextmanager
    def running(self, kinds: Sequence[str], size: int) -> Iterator[None]:
        """Run so many instances of each kind for the block; nothing is left of them."""
        role = self._post("roles", {"name": "hostile", "trust_policy": _TRUST})
        policy = self._post("policies", {"name": "hostile", "document": _PULL})
        self._post(f"policies/{policy['id']}/attachments", {"role": role["id"]})
        acme = self._world.acme
        login, image = ("token", acme.password), busybox_image("true")
        push_as(self._world.url, login, "acme/hostile", "1", image)
        try:
            for kind in kinds:
                body = {
                    "name": kind.replace(" ", "-"),
                    "image": "hostile:1",
                    "size": size,
                    "command": HOSTILE[kind],
                    "role": "hostile",
                }
                self._post("instance-pools", body)
            self._await(lambda pools: all(each["status"] == "active" for each in pools))
            yield
        finally:
            for each in self._pools():
                self._call(acme, "DELETE", f"/v1/instance-pools/{each['id']}")
            self._await(lambda pools: not pools)

    def _post(self, path: str, body: object) -> Any:  # noqa: ANN401
        (made,) = self._call(self._world.acme, "POST", f"/v1/{path}", body).values()
        return made

    def _pools(self) -> Any:  # noqa: ANN401
        return self._call(self._world.acme, "GET", "/v1/instance-pools")["instance_pools"]

    def _await(self, is_so: Callable[[Any], bool]) -> None:
        end = time.monotonic() + _WAIT_SECONDS
        while not is_so(pools := self._pools()):
            if time.monotonic() > end:
                raise TimeoutError(json.dumps(pools))
            time.sleep(0.2)

    def _stored(self) -> Sequence[str]:
        """Push an image of the neighbour; return the paths of what is pulled of it."""
        image = busybox_image("true", files={"srv/small": os.urandom(4096)})
        login = ("token", self._world.signed_in.partner.password)
        push_as(self._world.url, login, "partner/bench", "1", image)
        blobs = (f"blobs/{digest}" for digest in image.blobs)
        return [
            f"/v2/partner/bench/{each}"
            for each in ("manifests/1", f"manifests/{image.digest}", *blobs)
        ]


def run(kinds: Sequence[str], size: int, seconds: float, tell: Callable[[str], object]) -> bool:
    """Measure, and tell; return True if the neighbour waited too long."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        with serving(data, "--workers", "2", settings=lambda _: _SETTINGS) as signed_in:
            found = Neighbours(World(signed_in, 0))
            found.measure(seconds / 4)  # so that what is kept is kept
            tell(f"load average {os.getloadavg()[0]:.1f} before")
            tell(f"{'beside':22} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8} {'pulls':>7}")
            alone = found.measure(seconds)
            tell(f"{'nothing':22} {alone}")
            with found.running(kinds, size):
                beside = found.measure(seconds)
                tell(f"{f'{size * len(kinds)} hostile instances':22} {beside}")
            tell(f"p99: {beside.p99_ms / alone.p99_ms:.2f} times; at most {LIMIT_MS:.0f} ms")
            return beside.p99_ms > LIMIT_MS


def main() -> int:
    """Measure, print, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside_instances")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each of the two")
    parser.add_argument("--size", type=int, default=2, help="instances of each kind")
    parser.add_argument("--only", choices=HOSTILE, action="append", help="may be given repeatedly")
    options = parser.parse_args()
    if os.geteuid() != 0 or shutil.which("runc") is None or not BUSYBOX.exists():
        sys.stderr.write("it needs root, runc and busybox-static\n")
        return 2

    def tell(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    late = run(options.only or [*HOSTILE], options.size, options.seconds, tell)
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
