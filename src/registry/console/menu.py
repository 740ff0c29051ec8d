"""The kinds of resources that have pages, in the order of the menu."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final

from cloudcore.family import Family
from cloudcore.queue.queue import QUEUE
from registry.console.nouns.noun_pages import Column, CustomMethod, NounPages
from registry.console.nouns.resources import deletion, noun_of
from registry.console.pages.access.service_accounts import SERVICE_ACCOUNT
from registry.console.pages.account.billing import INVOICE, PAYMENT_METHOD
from registry.console.pages.account.keys import KEY
from registry.console.pages.services.buckets import BUCKET
from registry.console.pages.services.certificates import CERTIFICATE
from registry.console.pages.services.clusters import CLUSTER
from registry.console.pages.services.email import IDENTITY, MESSAGE, TEMPLATE
from registry.console.pages.services.instance_pools import INSTANCE_POOL
from registry.console.pages.services.load_balancers import LOAD_BALANCER
from registry.console.pages.services.network import GATEWAY, GROUP, TABLE, VPC
from registry.console.pages.services.topics import TOPIC

_QUEUE: Final = noun_of(
    QUEUE, "A queue holds messages until a program has leased and acknowledged them."
)
_DEAD_LETTERS: Final = Column("Dead letters", "redrive_policy.dead_letter_queue", "reference")
_QUEUES: Final = replace(
    _QUEUE,
    columns=(*_QUEUE.columns[:-1], _DEAD_LETTERS, _QUEUE.columns[-1]),
    methods=(
        CustomMethod(
            "purge",
            "Purge",
            "queue:PurgeQueue",
            "The queue was purged: its messages are gone.",
            asks="All its messages are deleted.",
            is_grave=True,
        ),
        deletion("queue", "queue:DeleteQueue", said="with its messages"),
    ),
    commands=(("Lease from it", "entrepot queues lease NAME"),),
    parts="noun_queue.html",
)
_SHOWN: Final = (
    TOPIC,
    _QUEUES,
    CERTIFICATE,
    BUCKET,
    INSTANCE_POOL,
    LOAD_BALANCER,
    CLUSTER,
    MESSAGE,
    TEMPLATE,
    IDENTITY,
    VPC,
    GATEWAY,
    TABLE,
    GROUP,
    PAYMENT_METHOD,
    INVOICE,
)
_ELSEWHERE: Final = (KEY, SERVICE_ACCOUNT)
"""Nouns that are elsewhere in the menu than under "Services"."""


@cache
def nouns_of(families: tuple[Family[Any], ...]) -> Sequence[NounPages]:
    """Return the nouns of these families that have pages, in the order of the menu."""
    services = {kind.family for each in families for kind in each.resource_kinds}
    known = {(each.service, each.one) for each in (*_SHOWN, *_ELSEWHERE)}
    plain = [
        noun_of(each)
        for family in families
        for each in family.resources
        if (each.service, each.one) not in known and "list" in each.methods
    ]
    return [each for each in (*_SHOWN, *plain, *_ELSEWHERE) if each.service in services]
