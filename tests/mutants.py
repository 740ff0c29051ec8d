"""Put small faults into the rooms that protect most, and print those that no test finds.

``python -m tests.mutants ROOM… --share 0.1 --seed 7`` draws a tenth of the mutants of each room, so
that two trees are compared with one seed. Mutants are made by cosmic-ray, one at a time in a copy
of what is committed, and the room's tests are run for each, in the order of its list, until one
fails.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec, WorkerOutcome, WorkResult


class Room(NamedTuple):
    """Sources that are changed, and the tests that should notice."""

    sources: str
    tests: Sequence[str]


ROOMS: Final = {
    "iam": Room(
        "src/cloudcore/iam",
        (
            "unit/test_identity_passwords.py",
            "unit/test_policy.py",
            "unit/test_policy_work.py",
            "property/test_policies.py",
            "integration/test_kernel_guard.py",
            "integration/test_platform_roles.py",
            "integration/test_sign_in_attempts.py",
        ),
    ),
    "signature": Room(
        "src/cloudcore/storage/s3/signature.py",
        (
            "unit/test_s3_signature.py",
            "unit/test_s3_chunked.py",
            "integration/test_s3_claims.py",
            "integration/test_s3_posted_forms.py",
        ),
    ),
    "gc": Room(
        "src/registry/gc",
        (
            "unit/test_manifest_check.py",
            "unit/test_object_check.py",
            "unit/test_orphan_scan.py",
            "fault/test_collector_errors.py",
            "fault/test_database_rollback.py",
            "integration/test_collector.py",
            "integration/test_cli_scrub.py",
            "integration/test_damaged_blobs.py",
            "integration/test_fsck.py",
            "integration/test_fsck_keys.py",
            "integration/test_inline_blobs.py",
            "integration/test_older_database.py",
            "integration/test_registry_bytes.py",
            "integration/test_repositories.py",
            "integration/test_scrub.py",
            "integration/test_seal_run.py",
            "integration/test_shredding.py",
            "integration/test_storage_kept.py",
            "integration/test_tag_history.py",
            "integration/test_unwritten_uploads.py",
        ),
    ),
    "blobs": Room(
        "src/registry/services/blobs",
        (
            "unit/test_upload_ids.py",
            "fault/test_blob_recording.py",
            "integration/test_damaged_blobs.py",
            "integration/test_inline_blobs.py",
            "integration/test_push_cache_targets.py",
            "integration/test_registry_counts.py",
            "integration/test_rewrap.py",
            "integration/test_sealed_blobs.py",
            "integration/test_shredding.py",
            "integration/test_unwritten_uploads.py",
            "integration/test_upload_leases.py",
            "integration/test_upload_workers.py",
            "property/test_registry_model.py",
            "property/test_upload_leases.py",
        ),
    ),
}
_FAULTS: Final = re.compile(
    r"core/(AddNot|ReplaceUnaryOperator_Delete_Not|Replace(And|Or)With(And|Or)"
    r"|Replace(True|False)With.*|Replace(Break|Continue)With.*|ExceptionReplacer"
    r"|ZeroIterationForLoop|ReplaceBinaryOperator_(Add_Sub|Sub_Add|Mul_Add|FloorDiv_Mul)"
    r"|ReplaceComparisonOperator_(Eq_NotEq|NotEq_Eq|Lt_LtE|LtE_Lt|Gt_GtE|GtE_Gt|Is_IsNot|IsNot_Is))"
)
"""Operators of cosmic-ray that are used. The others change types, which nobody evaluates, or one
place many times."""
_SECONDS: Final = 200
"""After which the tests of a mutant are ended: it is found, as it loops or hangs."""


def _is_drawn_from(mutation: MutationSpec, tree: Path) -> bool:
    """Return False for mutants of other operators, and of a decorator's flags, such as `frozen`."""
    if not _FAULTS.fullmatch(mutation.operator_name):
        return False
    lines = (tree / mutation.module_path).read_text().splitlines()
    return not lines[mutation.start_pos[0] - 1].lstrip().startswith("@")


def _without_most(session: WorkDB, tree: Path, share: float, seed: int) -> None:
    """Mark all mutants but a drawn share of a session as skipped."""
    kept = [
        each
        for each in sorted(session.work_items, key=lambda item: str(item.mutations))
        if _is_drawn_from(each.mutations[0], tree)
    ]
    drawn = random.Random(seed).sample(kept, max(1, round(len(kept) * share)))
    wanted = {each.job_id for each in drawn}
    session.set_multiple_results(
        [each.job_id for each in session.work_items if each.job_id not in wanted],
        WorkResult(WorkerOutcome.SKIPPED),
    )


def mutate(name: str, share: float, seed: int) -> str:
    """Return how many mutants of a room were found, and the differences of the others."""
    room = ROOMS[name]
    with tempfile.TemporaryDirectory() as folder:
        tree, config, session = (Path(folder, each) for each in ("tree", "config", "session"))
        subprocess.run(("git", "clone", "--quiet", ".", tree), check=True)
        command = " ".join(
            (
                f"env PYTHONPATH=src SOAK=0.2 {sys.executable} -m pytest -qx -p no:cacheprovider",
                "-p no:randomly -m 'not postgresql'",
                *(f"tests/{each}" for each in room.tests),
            )
        )
        config.write_text(
            f'[cosmic-ray]\nmodule-path = "{room.sources}"\ntimeout = {_SECONDS}.0\n'
            f'excluded-modules = []\ntest-command = "{command}"\n'
            '[cosmic-ray.distributor]\nname = "local"\n'
        )
        run = partial(subprocess.run, cwd=tree, check=True, stdout=subprocess.DEVNULL)
        cosmic_ray = Path(sys.executable).with_name("cosmic-ray")
        run((cosmic_ray, "baseline", config))
        run((cosmic_ray, "init", config, session))
        with use_db(session, WorkDB.Mode.open) as opened:
            _without_most(opened, tree, share, seed)
        with subprocess.Popen((cosmic_ray, "exec", config, session), cwd=tree) as running:
            while running.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    running.wait(60)
                with use_db(session, WorkDB.Mode.open) as opened:
                    report = _report(name, opened)
                sys.stderr.write(f"{report.splitlines()[0]}\n")
        return report


def _report(name: str, session: WorkDB) -> str:
    results = [
        result for _, result in session.results if result.worker_outcome != WorkerOutcome.SKIPPED
    ]
    counts = Counter(result.is_killed for result in results)
    unnoticed = (result.diff or "" for result in results if not result.is_killed)
    return "\n".join((f"{name}: {counts[True]} of {len(results)} found", *unnoticed))


def main() -> None:
    """Run the rooms that are named, two beside each other."""
    parser = ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help=f"of {', '.join(ROOMS)}")
    parser.add_argument("--share", type=float, default=0.1, help="of the mutants (0.1)")
    parser.add_argument("--seed", type=int, default=1, help="draws them (1)")
    asked = parser.parse_args()
    if unknown := set(asked.rooms) - ROOMS.keys():
        parser.error(f"there is no room {', '.join(sorted(unknown))}")
    with ThreadPoolExecutor(2) as threads:
        act = partial(mutate, share=asked.share, seed=asked.seed)
        for report in threads.map(act, asked.rooms or ROOMS):
            sys.stdout.write(f"{report}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
