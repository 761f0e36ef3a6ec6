"""Read the store of a campaign once, consistently, for its reports."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from mhc.fuzz.campaign.store import FILE, Store
from mhc.fuzz.campaign.store_validation import check
from mhc.fuzz.check.differential import pairs
from mhc.fuzz.findings.finding import from_document
from mhc.fuzz.findings.fixtures import source_tree
from mhc.fuzz.findings.known_issues import KnownIssue, known
from mhc.fuzz.report.stored_run import Leg, Run, StoredFinding
from mhc.fuzz.report.words import replay_command
from mhc.operator import OPERATORS


def read_folder(folder: Path, known_issues: Sequence[KnownIssue] | None = None) -> Run:
    """Open the store in `folder` and read it; its campaign may still run.

    Args:
        known_issues: findings that are no failures; None: those of `KNOWN_ISSUES`.

    Raises:
        OSError, StoreError, sqlite3.DatabaseError: there is none, or it holds what no campaign writes.
    """
    with closing(Store(folder / FILE)) as store:
        return read(folder, store, known_issues)


def read(folder: Path, store: Store, known_issues: Sequence[KnownIssue] | None = None) -> Run:
    """Read the run in `folder` in one transaction: its campaign may still run.

    Args:
        known_issues: findings that are no failures; None: those of `KNOWN_ISSUES`.

    Raises:
        StoreError: the store holds what no campaign writes.
    """
    check(store)
    with store.batch():
        meta, counts, found = store.meta(), store.counts(), store.findings()
        kinds = ("regions", "ratios", "worst", "reached", "timeline", "restarts", "legs")
        tables = {name: store.table(name) for name in kinds}
        in_hand = store.in_hand()
    regions: dict[str, dict[str, int]] = {}
    for name, label, n in tables["regions"]:
        regions.setdefault(name, {})[label] = n
    reached: dict[str, dict[str, int]] = {}
    for name, symbol, size in tables["reached"]:
        reached.setdefault(name, {})[symbol] = size
    timeline: dict[str, dict[int, int]] = {}
    for name, tick, n in tables["timeline"]:
        timeline.setdefault(name, {})[tick] = n
    ratios: dict[str, dict[str, dict[int, int]]] = {}
    for name, subject, bin_, n in tables["ratios"]:
        ratios.setdefault(subject, {}).setdefault(name, {})[bin_] = n
    worst: dict[str, dict[str, tuple[float, str]]] = {}
    for name, subject, ratio, case in tables["worst"]:
        worst.setdefault(subject, {})[name] = (ratio, case)
    order = [spec.name for table in OPERATORS.values() for spec in (*table.outputs, *table.gradients)]
    subjects = [*(one for one in order if one in ratios), *sorted(set(ratios) - set(order))]
    listed = [str(one["name"]) for one in meta.get("implementations", [])]
    device, fixtures = str(meta.get("device", "cpu")), meta.get("fixtures", {})
    names = list(dict.fromkeys([*listed, *sorted(counts), *sorted(name for name, _, _ in tables["restarts"])]))
    return Run(
        folder=folder,
        meta=meta,
        names=names,
        counts=counts,
        regions=regions,
        ratios={subject: ratios[subject] for subject in subjects},
        worst={subject: worst.get(subject, {}) for subject in subjects},
        reached=reached,
        timeline=timeline,
        pairs=pairs(meta.get("partners", []), {name: counts.get(name, {}) for name in names}),
        restarts=tables["restarts"],
        legs=[Leg(*row) for row in tables["legs"]],
        findings=sorted(
            (_stored(folder / f"{id_}.json", row, device, fixtures.get(id_), known_issues) for id_, row in found.items()),
            key=lambda one: (one.known is not None, one.at, one.id),
        ),
        in_hand=in_hand,
    )


def _stored(
    path: Path, row: Mapping[str, Any], device: str, fixture: str | None, known_issues: Sequence[KnownIssue] | None
) -> StoredFinding:
    """Return the finding of a row of the store. It may have become a known issue after its campaign."""
    found = from_document(row["document"])
    entry = known(found.fingerprint, known_issues)
    return StoredFinding(
        id=path.stem,
        finding=found,
        known=None if entry is None else str(entry),
        replay=replay_command(path, device, found.spec, found.against),
        fixture=None if fixture is None else _from_checkout(fixture),
        **row,
    )


def _from_checkout(path: str) -> str:
    """Return a path in this checkout relative to its root, as it reads in every checkout; any other path as it is."""
    root = source_tree()
    return str(Path(path).relative_to(root)) if root is not None and Path(path).is_relative_to(root) else path
