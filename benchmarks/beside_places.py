"""All places where work leaves the event loop, and what presses each of them.

A place is a function that starts a thread or a child process, makes a pool, or calls in one.
Each names the load of `benchmarks.beside` that presses it, or says why no load of a client can hold
up others there. A test compares this list with the sources (`tests/unit/test_beside.py`).
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

_MAKERS: Final = frozenset(
    {
        "FairThread",
        "ProcessPoolExecutor",
        "Thread",
        "ThreadPoolExecutor",
        "Threads",
        "Timer",
        "create_subprocess_exec",
        "create_subprocess_shell",
        "fork",
        "forkpty",
        "getaddrinfo",
        "getnameinfo",
        "multiprocessing.Process",
        "posix_spawn",
        "run_in_executor",
        "start_new_thread",
        "subprocess.Popen",
        "subprocess.call",
        "subprocess.check_call",
        "subprocess.check_output",
        "subprocess.run",
        "to_thread",
    }
)
"""What starts threads and processes, makes pools, or calls in the event loop's own."""
_POOLS: Final = frozenset({"FairThread", "ProcessPoolExecutor", "ThreadPoolExecutor", "Threads"})
_MODULES: Final = frozenset({"multiprocessing", "subprocess"})
"""Whose names say too little by themselves."""
_COMMANDS: Final = (
    "registry/cli/",
    "registry/backup/",
    "cloudcore/compute/keeper/",
    "cloudcore/databases/s3_bridge_program.py",
    "cloudcore/databases/commands.py",
    "cloudcore/databases/server_keeper.py",
    "cloudcore/nodes/keeper.py",
    "cloudcore/nodes/keeper_commands.py",
)
"""Programs of their own, whose threads hold up nobody but who started them."""


class Place(NamedTuple):
    """One function, and what it comes to."""

    loads: Sequence[str] = ()
    """Loads of `benchmarks.beside` that press it."""
    why: str = ""
    """Why there is none, if so."""
    uses: int = 1
    """How many there are in the function."""


_MAKES: Final = "makes a pool; each call in it is listed for itself"
_STARTS: Final = "at the start and the stop of a process, or to measure it; no client causes it"
_OUTSIDE: Final = "waits for a machine outside, and computes nothing; the threads are its own"
_ELSEWHERE: Final = "bodies of megabytes in memory, or under a server that is not ours"
_FILES: Final = "waits for the disk, a file at a time, in threads of the store's own"
_MOVES: Final = "bytes on their way; measured beside others by `python -m benchmarks`"
_PROGRAMS_RUN: Final = "waits for processes of instances and databases, in threads of their own"
_LAUNCHES: Final = "starts a process of a machine, by who reconciles it; no request waits for it"
_ONCE: Final = "made once in a process, for all who ask"
_ON_MACHINE: Final = "one job or watch at a time, in threads of their own; waits for the kernel"
_RUNS: Final = "one run of a program at a time for each cluster, by its job or its watch"
_SMALL: Final = "files of a few kilobytes, of one machine's instances"
_ONE_THREAD: Final = "the only one of its kind in a process: transactions, lines of a log"

PLACES: Final[Mapping[str, Place]] = {
    "cloudcore/acme/conversing.py:": Place(why=_MAKES),
    "cloudcore/acme/conversing.py:_converse": Place(why=_OUTSIDE, uses=3),
    "cloudcore/billing/stripe_processor.py:__init__": Place(why=_MAKES, uses=2),
    "cloudcore/billing/stripe_processor.py:_asked": Place(why=_OUTSIDE),
    "cloudcore/certificate/routes.py:upload_certificate": Place(
        ("hostile keys", "keys of other kinds", "uploads")
    ),
    "cloudcore/certificate/routes.py:create_certificate": Place(
        why="one signature of at most 8,192 bits is verified, in the turns of accounts"
    ),
    "cloudcore/certificate/work.py:_request": Place(("slow certificates",)),
    "cloudcore/compute/kept_instances.py:": Place(why=_MAKES),
    "cloudcore/compute/kept_instances.py:__init__": Place(why=_PROGRAMS_RUN),
    "cloudcore/compute/credentials.py:_give": Place(why=_SMALL, uses=2),
    "cloudcore/compute/credentials.py:_take": Place(why=_SMALL),
    "cloudcore/compute/credentials.py:renew": Place(why=_SMALL, uses=2),
    "cloudcore/compute/machine.py:bring_up": Place(why=_SMALL),
    "cloudcore/compute/routes.py:get_instance_logs": Place(
        why="reads ten megabytes at most of two files; computes nothing"
    ),
    "cloudcore/databases/archives.py:_within": Place(why=_RUNS, uses=2),
    "cloudcore/databases/archives.py:restore": Place(why=_RUNS),
    "cloudcore/databases/backup_routes.py:_check_programs": Place(
        why="looks for programs in a few folders; computes nothing"
    ),
    "cloudcore/databases/s3_bridge.py:_start": Place(why=_ONCE),
    "cloudcore/databases/bucket_files.py:__call__": Place(why=_RUNS, uses=2),
    "cloudcore/databases/confined_runs.py:started": Place(why=_RUNS),
    "cloudcore/databases/pgbackrest.py:back_up": Place(why=_RUNS),
    "cloudcore/databases/restored_data.py:give": Place(why=_ON_MACHINE),
    "cloudcore/databases/restored_data.py:remove_tree": Place(why=_ON_MACHINE),
    "cloudcore/databases/restored_data.py:size_of": Place(why=_ON_MACHINE),
    "cloudcore/databases/server_locks.py:done_to": Place(why=_ON_MACHINE),
    "cloudcore/databases/servers.py:": Place(why=_MAKES),
    "cloudcore/databases/servers.py:__init__": Place(why=_PROGRAMS_RUN),
    "cloudcore/db/postgresql.py:__init__": Place(why=_ONE_THREAD),
    "cloudcore/db/postgresql.py:close": Place(why=_STARTS, uses=2),
    "cloudcore/db/postgresql_watch.py:_wake": Place(why=_ONE_THREAD),
    "cloudcore/db/sqlite.py:__init__": Place(why=_MAKES),
    "cloudcore/db/sqlite.py:close": Place(why=_STARTS, uses=2),
    "cloudcore/db/sqlite_writer.py:__init__": Place(why=_ONE_THREAD),
    "cloudcore/email/message_routes.py:get_message": Place(
        why="what a message of a megabyte says is opened: a few milliseconds, in turns of accounts"
    ),
    "cloudcore/email/message_routes.py:send_message": Place(("mails",)),
    "cloudcore/email/return_mail.py:": Place(why=_MAKES),
    "cloudcore/email/return_mail.py:_take": Place(
        why="reads one report of bounded size; more wait their turn, and hold up mail servers alone"
    ),
    "cloudcore/email/sending.py:_attempt": Place(
        why="one signature, and the encoding of a body of at most a megabyte, in turns of accounts"
    ),
    "cloudcore/email/sending_identities.py:_prepare": Place(("sending identities",)),
    "cloudcore/email/templates.py:preview_template": Place(("mails",)),
    "cloudcore/iam/passwords.py:__init__": Place(why=_MAKES),
    "cloudcore/iam/passwords.py:_run": Place(("passwords",)),
    "cloudcore/identity/routes/policies.py:_check": Place(("policies",)),
    "cloudcore/kms/providers.py:__init__": Place(why=_MAKES, uses=2),
    "cloudcore/kms/providers.py:_asked": Place(why=_OUTSIDE),
    "cloudcore/kms/services.py:_material": Place(("slow keys",)),
    "cloudcore/loadbalancer/haproxy.py:_verify": Place(why=_LAUNCHES),
    "cloudcore/loadbalancer/haproxy.py:check": Place(why=_MAKES),
    "cloudcore/loadbalancer/replicas.py:_start": Place(why=_LAUNCHES),
    "cloudcore/network/changes.py:": Place(why=_MAKES),
    "cloudcore/network/changes.py:change": Place(
        why="rules of one VPC: 25 ms of `nft -c`, 200 ms with the most, in the turns of accounts"
    ),
    "cloudcore/network/checking.py:_said": Place(why="waited for by the thread of changes.py"),
    "cloudcore/network/namespaces.py:_in_a_thread": Place(why=_ON_MACHINE),
    "cloudcore/network/reachability_routes.py:get_reachability": Place(
        why="computes for a tenth of a second at most, in the turns of accounts"
    ),
    "cloudcore/network/router.py:_nft": Place(why=_ON_MACHINE),
    "cloudcore/network/vpc_files.py:__init__": Place(why=_MAKES),
    "cloudcore/network/vpc_files.py:run": Place(why=_ON_MACHINE),
    "cloudcore/nodes/kept_process.py:_main": Place(why=_LAUNCHES),
    "cloudcore/nodes/kept_process.py:start": Place(why=_LAUNCHES),
    "cloudcore/nodes/kept_programs.py:run": Place(why=_PROGRAMS_RUN),
    "cloudcore/nodes/watching.py:begin": Place(why=_STARTS),
    "cloudcore/outbound/names.py:_look_up": Place(why=_OUTSIDE),
    "cloudcore/outbound/names.py:resolve": Place(why=_OUTSIDE),
    "cloudcore/outbound/smtp.py:__init__": Place(why=_MAKES),
    "cloudcore/outbound/smtp.py:send": Place(why=_OUTSIDE),
    "cloudcore/serving/logs.py:__init__": Place(why=_ONE_THREAD),
    "cloudcore/serving/body.py:_in_thread": Place(why=_ELSEWHERE, uses=2),
    "cloudcore/serving/body.py:_joined": Place(("large manifests",), uses=2),
    "cloudcore/serving/bulk.py:submit": Place(why=_MOVES),
    "cloudcore/serving/server.py:_end_process_after": Place(why=_STARTS),
    "cloudcore/serving/supervisor.py:_be_worker": Place(why=_STARTS),
    "cloudcore/serving/supervisor.py:_fork": Place(why=_STARTS),
    "cloudcore/storage/storing.py:": Place(why=_MAKES),
    "cloudcore/storage/storing.py:_in_thread": Place(why=_MOVES, uses=2),
    "cloudcore/threads.py:": Place(why=_MAKES, uses=3),
    "cloudcore/threads.py:__init__": Place(why=_MAKES),
    "cloudcore/web/app.py:json": Place(("large bodies",)),
    "cloudcore/web/streams.py:_send_file": Place(why=_ELSEWHERE, uses=2),
    "registry/blobstore/disk_cache.py:__init__": Place(why=_OUTSIDE),
    "registry/blobstore/filesystem.py:__init__": Place(why=_MAKES),
    "registry/blobstore/opening.py:_opened": Place(why=_STARTS),
    "registry/blobstore/s3/parts.py:pool": Place(why=_OUTSIDE, uses=2),
    "registry/blobstore/s3/store.py:__init__": Place(why=_MAKES),
    "registry/blobstore/threads.py:__call__": Place(why=_FILES, uses=2),
    "registry/console/assets.py:send_client": Place(why=_ONCE),
    "registry/console/pages/my_account.py:_show": Place(why=_ONCE),
    "registry/distribution/byteranges.py:": Place(why=_MAKES),
    "registry/distribution/byteranges.py:send_ranges": Place(("ranges",)),
    "registry/gauges.py:measure": Place(why=_STARTS, uses=5),
    "registry/gc/object_check.py:": Place(why=_MAKES),
    "registry/gc/object_check.py:in_thread": Place(why=_MOVES),
    "registry/gc/recovery.py:_verify": Place(why=_MOVES, uses=2),
    "registry/image_roots/images.py:fetch": Place(why="a small file of each layer is read"),
    "registry/image_roots/images.py:keep_only": Place(
        why="waits for the disk, in the one process of a machine that watches instances"
    ),
    "registry/image_roots/layer_store.py:_in_thread": Place(why="waits for the disk, for one name"),
    "registry/image_roots/layer_store.py:_start": Place(
        why="one nicer program a layer; of each account one at a time, and at most three"
    ),
    "registry/image_roots/layer_store.py:unpack": Place(why="a small file of each layer is read"),
    "registry/main.py:_start": Place(why=_STARTS),
    "registry/main.py:writes": Place(why=_STARTS),
    "registry/services/images/image_contents.py:read_attachment": Place(("attachments",)),
    "registry/services/images/image_contents.py:_platforms_of_index": Place(("descriptions",)),
    "registry/services/images/image_contents.py:read_configuration": Place(("descriptions",)),
    "registry/services/images/manifest_damage.py:": Place(why=_MAKES),
    "registry/services/images/manifest_damage.py:_is_whole": Place(("pulled manifests",)),
    "registry/services/images/manifests.py:read_pushed": Place(("large manifests",)),
    "registry/services/lifecycle/preview.py:preview": Place(("previews",)),
    "registry/services/lifecycle/runs.py:make_plan": Place(("previews",)),
    "registry/services/lifecycle/scan.py:": Place(why=_MAKES),
    "registry/services/lifecycle/scan.py:read_all": Place(("previews",)),
    "registry/services/pull_through/fill_staging.py:": Place(why=_MAKES),
    "registry/services/pull_through/fill_staging.py:_write": Place(why=_MOVES),
    "registry/services/pull_through/fill_staging.py:commit": Place(why=_MOVES),
    "registry/services/pull_through/fill_staging.py:note": Place(why=_MOVES),
}


ON_THE_LOOP: Final = frozenset({"deletions"})
"""Loads of work that is done on the event loop, a portion at a time: documents of S3 clients."""


def places(sources: Path) -> Counter[str]:
    """Return how many uses each function of the sources has, by file and name."""
    trees = {
        str(path.relative_to(sources)): ast.parse(path.read_text())
        for path in sorted(sources.rglob("*.py"))
    }
    watched = _MAKERS | {name for tree in trees.values() for name in _pools_of(tree)}
    return Counter(
        f"{path}:{function}"
        for path, tree in trees.items()
        if not path.startswith(_COMMANDS)
        for function, name in _names(tree, "")
        if name in watched
    )


def _pools_of(tree: ast.Module) -> Iterator[str]:
    """Yield the names of the pools that a module makes for others to call in."""
    for node in tree.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Call(func=ast.Name(id=made))):
                if made in _POOLS:
                    yield name


def _names(node: ast.AST, function: str) -> Iterator[tuple[str, str]]:
    """Yield each name that is read, `name` or `owner.name`, with the function around it."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            function = name
        case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner in _MODULES:
            yield function, f"{owner}.{name}"
        case ast.Attribute(attr=name):
            yield function, name
        case ast.Name(id=name, ctx=ast.Load()):
            yield function, name
    for field, value in ast.iter_fields(node):
        if field not in ("annotation", "returns"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _names(child, function)
