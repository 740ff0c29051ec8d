"""The plan that a load balancer's replicas carry out, and what drivers report about replicas.

A plan that is impossible or ambiguous cannot be constructed: its parts check themselves and raise
`PlanRefused`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final, Literal

HEALTH_PATH: Final = re.compile(r"/[A-Za-z0-9/._~!$&'()*+,;=:@%?-]{0,1023}")
"""Path and query of an HTTP health check: the characters that a URI may have (RFC 3986 §3.3 and
§3.4)."""
CERTIFICATE_FILE: Final = re.compile(r"[0-9a-z-]{1,64}\.pem")
BALANCER_ID: Final = re.compile(r"[0-9a-z-]{1,64}")

MOST_CHECK_SECONDS: Final = 3600
MOST_THRESHOLD: Final = 100


class PlanRefused(ValueError):
    """A part of a plan is impossible or ambiguous."""


@dataclass(frozen=True, slots=True)
class HealthPlan:
    """A health check: a target accepts a connection, or answers a GET with 2xx or 3xx."""

    protocol: Literal["tcp", "http"] = "tcp"
    path: str | None = None
    """Path and query of the request over HTTP; None for `/`."""
    interval_seconds: int = 5
    timeout_seconds: int = 2
    healthy_threshold: int = 2
    unhealthy_threshold: int = 3

    def __post_init__(self) -> None:
        _require(self.protocol in ("tcp", "http"), "a health check is over tcp or http")
        _require(
            self.path is None or HEALTH_PATH.fullmatch(self.path) is not None,
            "the path of a health check starts with / and holds what a URI may hold",
        )
        for seconds in (self.interval_seconds, self.timeout_seconds):
            _require(1 <= seconds <= MOST_CHECK_SECONDS, "a health check takes 1 to 3600 seconds")
        for threshold in (self.healthy_threshold, self.unhealthy_threshold):
            _require(1 <= threshold <= MOST_THRESHOLD, "a threshold is from 1 to 100")


@dataclass(frozen=True, slots=True)
class TargetPlan:
    """A target, at an address and port or behind a Unix socket."""

    id: str
    """The target's id in `ReplicaState`; any text, which no proxy sees."""
    address: str | None = None
    port: int | None = None
    socket: str | None = None
    """The path of the Unix socket, which no proxy sees."""
    is_draining: bool = False
    """It gets no new connections; existing ones continue."""

    def __post_init__(self) -> None:
        if self.socket is not None:
            _require(self.address is None and self.port is None, "a target has one place")
            is_path = self.socket.startswith("/") and "\0" not in self.socket
            _require(is_path, "the path of a socket is absolute")
        else:
            _require_address(self.address)
            _require_port(self.port)


@dataclass(frozen=True, slots=True)
class BackendPlan:
    """Interchangeable targets; new connections go to the usable ones in turn."""

    name: str
    """Any text, which no proxy sees."""
    protocol: Literal["tcp", "http"]
    health: HealthPlan
    targets: tuple[TargetPlan, ...]

    def __post_init__(self) -> None:
        _require(self.protocol in ("tcp", "http"), "a backend speaks tcp or http")
        _require_distinct((target.id for target in self.targets), "two targets have one id")


@dataclass(frozen=True, slots=True)
class ListenerPlan:
    """A port of the balancer's address."""

    port: int
    protocol: Literal["tcp", "http", "https"]
    backend: str
    """The name of a backend of the plan."""
    certificate_file: str | None = None
    """The file with the chain and the key, for https; else None."""

    def __post_init__(self) -> None:
        _require_port(self.port)
        _require(self.protocol in ("tcp", "http", "https"), "a listener is tcp, http or https")
        _require(
            (self.certificate_file is not None) == (self.protocol == "https"),
            "a listener has a certificate if it is https",
        )
        _require(
            self.certificate_file is None
            or CERTIFICATE_FILE.fullmatch(self.certificate_file) is not None,
            "not a name of a certificate's file",
        )


@dataclass(frozen=True, slots=True)
class ProxyPlan:
    """The plan of all replicas of one balancer."""

    balancer_id: str
    vip: str
    """The address that the replicas share."""
    listeners: tuple[ListenerPlan, ...]
    backends: tuple[BackendPlan, ...]

    def __post_init__(self) -> None:
        _require(BALANCER_ID.fullmatch(self.balancer_id) is not None, "not the id of a balancer")
        _require_address(self.vip)
        _require_distinct((backend.name for backend in self.backends), "two backends of one name")
        _require_distinct((one.port for one in self.listeners), "two listeners on one port")
        protocols = {backend.name: backend.protocol for backend in self.backends}
        for listener in self.listeners:
            wanted = "tcp" if listener.protocol == "tcp" else "http"
            _require(
                protocols.get(listener.backend) == wanted,
                "a listener has a backend of its protocol",
            )

    @property
    def has_socket_targets(self) -> bool:
        """Return True if the plan has a target behind a Unix socket."""
        return any(target.socket for backend in self.backends for target in backend.targets)


def _require(is_so: bool, words: str) -> None:  # noqa: FBT001 - what is required stands first
    if not is_so:
        raise PlanRefused(words)


def _require_address(address: str | None) -> None:
    try:
        parsed = ip_address(address or "")
    except ValueError:
        raise PlanRefused("not an IP address") from None
    _require(str(parsed) == address and "%" not in address, "not an IP address in its usual form")


def _require_port(port: int | None) -> None:
    _require(port is not None and 1 <= port <= 65535, "a port is from 1 to 65535")


def _require_distinct(values: Iterable[object], words: str) -> None:
    listed = list(values)
    _require(len(set(listed)) == len(listed), words)


TargetStatus = Literal["healthy", "unhealthy", "draining", "unknown"]


class ProxyFailed(Exception):
    """A replica could not be started or reloaded; the text has the reason.

    If a process was running, it continues with its previous configuration.
    """


@dataclass(frozen=True, slots=True)
class ReplicaMetrics:
    """Counters of a replica since it was started (with HAProxy, since it was last reloaded)."""

    bytes_in: int = 0
    """From clients."""
    bytes_out: int = 0
    connections: int = 0
    requests: int = 0
    """The requests to listeners that speak HTTP."""
    answers: Mapping[str, int] = field(default_factory=dict)
    """The number of responses by status class: `1xx` to `5xx`."""


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """The state of a replica on this machine."""

    replica: int
    is_alive: bool
    """The replica answers. If its process has ended, the next `apply` starts another."""
    targets: Mapping[tuple[str, str], TargetStatus] = field(default_factory=dict)
    """The status of each target, by the name of the backend and the id of the target."""
    metrics: ReplicaMetrics = field(default_factory=ReplicaMetrics)
