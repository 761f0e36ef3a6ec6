"""The known issues of a project: saved findings that its configuration lists."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import click

from mhc.fuzz.check.differential import Peer
from mhc.fuzz.findings.finding import Finding
from mhc.fuzz.findings.known_issues import KnownIssue
from mhc.fuzz.minimise.minimise import confirm
from mhc.fuzz.minimise.sandbox import least_limit, processes
from mhc.registry import Tested


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A known issue of the configuration.

    Attributes:
        finding: the saved finding, which must still fail. device: on which. where: the file and key that messages name.
    """

    issue: KnownIssue
    finding: Finding
    device: str
    where: str


def refuse_mended(
    entries: Sequence[Entry], loaded: Sequence[tuple[str, Tested]], peers: Sequence[Peer], device: str
) -> None:
    """Run the finding of each entry again in fresh processes, where its implementation is one of those `loaded`.

    An entry of another device is left out, and one that was compared with what is not among `peers`: nothing is executed
    that only a finding names.

    Raises:
        click.UsageError: a finding does not fail any more, so that its entry must go.
        HarnessError: a process could not check it.
    """
    by_name = {implementation.name: (spec, implementation) for spec, implementation in loaded}
    for entry in entries:
        found = entry.finding
        compared = found.against is None or found.against in {peer.spec for peer in peers}
        if entry.device != device or not compared or found.fingerprint.implementation not in by_name:
            continue
        spec, implementation = by_name[found.fingerprint.implementation]
        start = processes(spec, implementation, device, found.against)
        again = confirm(replace(found, spec=spec), start, least=least_limit(implementation)).reduction
        assert again is not None
        if not again.reproduced:
            raise click.UsageError(
                f"{entry.where}: {entry.issue.fixture} does not fail any more ({again.runs} runs on {device}); "
                f"take out the entry of {entry.issue.issue}"
            )
