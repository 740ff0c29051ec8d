"""Metrics of load balancers: each replica's counters are summed across its restarts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct, structs

from cloudcore.db.base import Connection
from cloudcore.db.rows import json_text
from cloudcore.loadbalancer import rows
from cloudcore.loadbalancer.driver import ReplicaMetrics
from cloudcore.loadbalancer.load_balancer import LoadBalancer
from cloudcore.wire import ResponseBody

CLASSES: Final = ("1xx", "2xx", "3xx", "4xx", "5xx")


class ProxyCounters(Struct, frozen=True, omit_defaults=True):
    """Counters of a replica or of a load balancer."""

    bytes_in: int = 0
    """From clients."""
    bytes_out: int = 0
    connections: int = 0
    requests: int = 0
    """Of listeners that speak HTTP."""
    responses_1xx: int = 0
    responses_2xx: int = 0
    responses_3xx: int = 0
    responses_4xx: int = 0
    responses_5xx: int = 0


class MetricsRecord(ResponseBody):
    """What a load balancer has served since it was created."""

    bytes_in: int
    """From clients."""
    bytes_out: int
    connections: int
    requests: int
    """Of listeners that speak HTTP."""
    responses: Mapping[str, int]
    """By class of status: `1xx` to `5xx`."""


class OneMetrics(ResponseBody):
    """The body of an answer: what a load balancer has served."""

    metrics: MetricsRecord


def counters_of(metrics: ReplicaMetrics) -> ProxyCounters:
    """Return the counters that a replica reports."""
    return ProxyCounters(
        metrics.bytes_in,
        metrics.bytes_out,
        metrics.connections,
        metrics.requests,
        *(metrics.answers.get(each, 0) for each in CLASSES),
    )


def note_served(
    tx: Connection, found: LoadBalancer, new: Mapping[int, ProxyCounters], now: int
) -> None:
    """Add what replicas counted since the last call; `new` maps replica numbers to readings."""
    known = rows.metrics_of(tx, found.account_id, found.id)
    for number, counts in new.items():
        total, last = (_decode(each) for each in known.get(number, ("{}", "{}")))
        total = added(total, since(last, counts))
        rows.put_metrics(tx, found, number, json_text(total), json_text(counts), now)


def served(tx: Connection, account_id: str, balancer_id: str) -> ProxyCounters:
    """Return the counters of a load balancer: the sum over all its replicas."""
    total = ProxyCounters()
    for text, _ in rows.metrics_of(tx, account_id, balancer_id).values():
        total = added(total, _decode(text))
    return total


def shown(total: ProxyCounters) -> OneMetrics:
    """Convert counters to an answer."""
    responses = {each: getattr(total, f"responses_{each}") for each in CLASSES}
    return OneMetrics(
        metrics=MetricsRecord(
            bytes_in=total.bytes_in,
            bytes_out=total.bytes_out,
            connections=total.connections,
            requests=total.requests,
            responses=responses,
        )
    )


def since(last: ProxyCounters, now: ProxyCounters) -> ProxyCounters:
    """Return the difference of two readings.

    If a counter is lower than before, the replica was restarted, so that all of `now` is new.
    """
    pairs = list(zip(structs.astuple(last), structs.astuple(now), strict=True))
    if any(new < old for old, new in pairs):
        return now
    return ProxyCounters(*(new - old for old, new in pairs))


def added(one: ProxyCounters, other: ProxyCounters) -> ProxyCounters:
    """Return the sum of two counters, field by field."""
    pairs = zip(structs.astuple(one), structs.astuple(other), strict=True)
    return ProxyCounters(*(a + b for a, b in pairs))


def _decode(text: str) -> ProxyCounters:
    return msgspec.json.decode(text, type=ProxyCounters)
