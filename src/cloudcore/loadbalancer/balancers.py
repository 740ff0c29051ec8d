"""Create, change, delete and show load balancers, and reserve their addresses (VIPs).

An address is reserved in the transaction that creates its load balancer, and is freed when the load
balancer is torn down. The primary key of the reservations prevents two load balancers from having
the same address.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any, Final

from msgspec import structs

from cloudcore.certificate.certificate import CERTIFICATE
from cloudcore.db.base import Connection
from cloudcore.errors import Conflict, invalid_field
from cloudcore.loadbalancer import bodies, rows
from cloudcore.loadbalancer.load_balancer import GET_POOL, Listener, LoadBalancer, Named, Target
from cloudcore.loadbalancer.needs import Parts, Ranges
from cloudcore.loadbalancer.planning import subnet_ranges
from cloudcore.loadbalancer.rows import ROWS
from cloudcore.loadbalancer.workflow import WORK
from cloudcore.network.resources import SECURITY_GROUP, SUBNET
from cloudcore.resource_references import Authorize, RightTo
from cloudcore.resources.bodies import Composite
from cloudcore.resources.methods import Methods
from cloudcore.resources.resource import DELETING
from cloudcore.web.bodies import ResourceRef


def check_vip(vip: str, ranges: Ranges) -> None:
    """Check that a load balancer may have the address `vip`; an empty string means any address.

    Raise `Conflict` if the operator has configured no addresses for load balancers, `InvalidInput`
    if `vip` is not one of them.
    """
    if not ranges:
        raise Conflict(
            "this install has no addresses for load balancers: the operator sets balancer_vips",
            reason="no_vips",
            setting="balancer_vips",
        )
    if vip and not any(_is_host(ip_address(vip), each) for each in ranges):
        words = "no host can have it in a range of this install"
        raise invalid_field("vip", words, "out_of_range")


def reserve(tx: Connection, found: LoadBalancer, ranges: Ranges) -> str:
    """Reserve the requested address for a load balancer, or any free one; return the address.

    Raise `Conflict` if the requested address is taken, or none is free.
    """
    if found.vip:
        if not rows.reserve(tx, found, found.vip):
            raise Conflict("the address is taken", reason="vip_taken", vip=found.vip)
        return found.vip
    taken = rows.taken_vips(tx)
    for vip in (str(address) for each in ranges for address in each.hosts()):
        if vip not in taken and rows.reserve(tx, found, vip):  # else another one was faster
            return vip
    raise Conflict("no address is free for a load balancer", reason="no_vips")


def _is_host(address: IPv4Address | IPv6Address, network: IPv4Network | IPv6Network) -> bool:
    """Return True if an address is one of `network.hosts()`, without listing them."""
    if address not in network:
        return False
    if network.num_addresses <= 2:  # RFC 3021, RFC 6164
        return True
    is_broadcast = network.version == 4 and address == network.broadcast_address
    return address != network.network_address and not is_broadcast


_RENDERED: Final = ("listeners", "backends", "replica_count", "security_groups")
"""A change of one of these fields must be applied on the machine."""


LOAD_BALANCERS: Final = Methods(
    ROWS,
    composites=(
        Composite(name="vpc", shown=ResourceRef, show=bodies.shown_vpc),
        Composite(name="subnet", shown=ResourceRef, show=bodies.shown_subnet),
        Composite(
            name="security_groups",
            words="What may reach its address.",
            shown=Sequence[ResourceRef],
            show=bodies.shown_groups,
        ),
        Composite(
            name="listeners", shown=Sequence[bodies.ListenerRecord], show=bodies.shown_listeners
        ),
        Composite(
            name="backends", shown=Sequence[bodies.BackendRecord], show=bodies.shown_backends
        ),
        Composite(
            name="replicas",
            words="Its proxies, as they were seen last.",
            shown=Sequence[bodies.ReplicaRecord],
            show=bodies.shown_replicas,
        ),
    ),
    docs={"get": "Return a load balancer, with the health of its targets."},
)


def create(
    tx: Connection,
    asked: LoadBalancer,
    subnet: str,
    named: Mapping[str, Any],
    parts: Parts,
    right_to: RightTo,
) -> LoadBalancer:
    """Insert a load balancer with its address, its interface and its certificates.

    `subnet` is the request's reference to a subnet. `named` has the request's listeners, backends
    and security groups, whose references are not resolved yet.

    Raises:
        InvalidInput, AccessDenied, NotFound: as `_resolved`.
        Conflict: the name or the address is taken, no address is free, or a certificate cannot be
            served.
        QuotaExceeded: the account has reached its quota.

    """
    place = asked.account_id, asked.region
    found = parts.interfaces.subnet(tx, *place, subnet, right_to(SUBNET.action("get")))
    new = structs.replace(
        asked,
        subnet=Named(found.id, found.name),
        vpc=Named(found.vpc_id, found.vpc_name),
        node=found.node,
    )
    new = structs.replace(new, **_resolved(tx, new, named, parts, right_to))
    LOAD_BALANCERS.create(tx, new)
    vip = reserve(tx, new, parts.vips)
    if vip != new.vip:
        rows.set_vip(tx, new, vip)
    _hold(tx, new, new.certificates, parts)
    rows.put_pools(tx, new, new.pools)
    placed = parts.interfaces.place(
        tx,
        new.account_id,
        new.region,
        new.subnet.id,
        [each.id for each in new.security_groups],
        new.crn,
        new.created_at,
        is_balancer=True,
    )
    made = ROWS.save(tx, structs.replace(new, vip=vip, interface_id=placed.id))
    WORK.wake(tx, made, new.created_at)
    return made


def update(
    tx: Connection,
    found: LoadBalancer,
    changes: Mapping[str, Any],
    parts: Parts,
    right_to: RightTo,
    now: int,
) -> LoadBalancer:
    """Change fields of a load balancer; its workflow applies the changes to the proxies.

    Raises:
        Conflict: the load balancer is being deleted, or a certificate cannot be served.
        InvalidInput, AccessDenied, NotFound: as `_resolved`; `InvalidInput` also if a listener
            would have no backend of its protocol.

    """
    WORK.wake(tx, found, now)  # first: steps, too, lock the job before the record
    old = ROWS.lock(tx, found.account_id, found.id)
    if old.status == DELETING:
        raise Conflict("the load balancer is being deleted", reason="being_deleted")
    changed = structs.replace(old, **_resolved(tx, old, changes, parts, right_to))
    if changed == old:
        return old
    bodies.check_match(changed.listeners, changed.backends)
    changed = structs.replace(changed, updated_at=now)
    if changed.security_groups != old.security_groups and old.interface_id is not None:
        ids = [each.id for each in changed.security_groups]
        parts.interfaces.set_groups(tx, old.interface_id, ids, now)
    if all(getattr(changed, each) == getattr(old, each) for each in _RENDERED):
        return ROWS.save(tx, changed)
    _hold(tx, changed, changed.certificates.keys() - old.certificates.keys(), parts)
    # Certificates that the proxies still serve are released once the change is applied.
    for each in old.certificates.keys() - changed.certificates.keys() - old.fingerprints.keys():
        parts.certificates.release(tx, each, old.crn)
    rows.put_pools(tx, changed, changed.pools)
    status = old.status if old.status == "provisioning" else "updating"
    return ROWS.save(tx, structs.replace(changed, generation=old.generation + 1, status=status))


def delete(tx: Connection, found: LoadBalancer, now: int) -> None:
    """Begin to tear a load balancer down; raise `NotFound` if it does not exist."""
    WORK.wake(tx, found, now)  # first: steps, too, lock the job before the record
    WORK.delete(tx, ROWS.lock(tx, found.account_id, found.id), now)


def _hold(tx: Connection, of: LoadBalancer, ids: Iterable[str], parts: Parts) -> None:
    for each in sorted(ids):
        parts.certificates.hold(tx, of.account_id, each, of.crn, field="listeners")


def _resolved(
    tx: Connection, of: LoadBalancer, changes: Mapping[str, Any], parts: Parts, right_to: RightTo
) -> dict[str, Any]:
    """Return changes of a load balancer with their references resolved.

    Raises:
        InvalidInput, AccessDenied, NotFound: as `cloudcore.resource_references.resolve`;
            `InvalidInput` also for an address that is in no subnet of the VPC.

    """
    place, found = (of.account_id, of.region), dict(changes)
    if "security_groups" in changes:
        right = right_to(SECURITY_GROUP.action("get"))
        asked = [each.id for each in changes["security_groups"]]
        groups = parts.interfaces.security_groups(tx, *place, of.vpc.id, asked, right)
        found["security_groups"] = tuple(Named(each.id, each.name) for each in groups)
    if "listeners" in changes:
        right = right_to(CERTIFICATE.action("get"))
        found["listeners"] = tuple(
            _with_certificate(tx, of, number, each, parts, right)
            for number, each in enumerate(changes["listeners"])
        )
    if "backends" in changes:
        ranges = subnet_ranges(tx, of)
        right = right_to(GET_POOL)
        found["backends"] = tuple(
            structs.replace(
                each,
                targets=tuple(
                    _with_pool(tx, of, one, one.pool, parts, right)
                    if one.pool is not None
                    else _within(f"backends[{number}].targets[{at}].address", one, ranges)
                    for at, one in enumerate(each.targets)
                ),
            )
            for number, each in enumerate(changes["backends"])
        )
        for number, each in enumerate(found["backends"]):
            bodies.check_distinct(f"backends[{number}].targets", "place", each.targets)
    return found


def _with_certificate(
    tx: Connection, of: LoadBalancer, number: int, each: Listener, parts: Parts, right: Authorize
) -> Listener:
    if each.certificate is None:
        return each
    asked, name = each.certificate.id, f"listeners[{number}].certificate"
    found = parts.certificates.resolve(tx, of.account_id, asked, right, field=name)
    return structs.replace(each, certificate=Named(found.id, found.name))


def _with_pool(
    tx: Connection, of: LoadBalancer, each: Target, pool: Named, parts: Parts, right: Authorize
) -> Target:
    found = parts.pools.pool(tx, of.account_id, of.region, pool.id, right)
    return structs.replace(each, pool=Named(found.id, found.name))


def _within(name: str, target: Target, ranges: Ranges) -> Target:
    if not any(ip_address(target.address) in each for each in ranges):
        raise invalid_field(name, f"{target.address} is in no subnet of the VPC", "outside")
    return target
