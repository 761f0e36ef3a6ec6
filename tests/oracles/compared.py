"""Compare the tolerances of mHC pre with those of an earlier commit, element by element.

    python -m tests.oracles.compared 44563bc --cases 1000

The earlier commit, in a folder of its own, draws the cases and keeps its tolerances; this tree reads both.
"""

import importlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
import hypothesis
import torch
from hypothesis import Phase

from mhc.case import Case
from mhc.inputs import materialise
from mhc.reference import reference

_DTYPES = ("float32", "bfloat16", "float16")


def _module(name: str) -> Any:
    """Return a module of the oracles or the strategies, by the name that every tree knows it by."""
    return importlib.import_module(name)


def measured(case: Case) -> tuple[list[Any], dict[str, tuple[torch.Tensor, torch.Tensor]]]:
    """Return the inputs of a case, and value and tolerance of each result."""
    inputs = materialise(case)
    given = [one for one in inputs.tensors.values() if one is not None]
    found = _module("oracles.bound").tolerances(inputs, reference(inputs)).results
    return given, {name: (one.value, one.error) for name, one in found.items()}


def drawn(count: int, seed: int) -> list[Case]:
    """Return cases as a campaign draws them."""
    found: list[Case] = []

    def keep(case: Case) -> None:
        found.append(case)

    cases, rounds = _module("strategies.cases").cases, _module("strategies.rounds")
    settings = rounds.quiet(rounds.ROUND, phases=(Phase.generate,))
    for at in range(0, count, rounds.ROUND):
        one = cases(dtypes=(_DTYPES[at // rounds.ROUND % 3],), max_elements=1 << 12)
        hypothesis.seed(seed + at)(settings(hypothesis.given(one)(keep)))()  # type: ignore[no-untyped-call]
    return found[:count]


def _keep(path: Path, count: int, seed: int) -> None:
    assert Path(importlib.import_module("mhc").__file__ or "").is_relative_to(Path.cwd()), "this is another tree"
    torch.save([(case.to_json(), *measured(case)) for case in drawn(count, seed)], path)


def _compare(kept: list[Any]) -> None:
    """Print the largest ratio of this tree's tolerance to the earlier one, of each result."""
    worst: dict[str, tuple[float, str]] = {}
    elements = wider = judged_no_more = other_inputs = 0
    for text, given, before in kept:
        case = Case.from_json(text)
        now_given, now = measured(case)
        if not all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(given, now_given, strict=True)):
            other_inputs += 1
            continue
        for name, (_, error) in before.items():
            after = now[name][1]
            finite = error.isfinite()
            ratio = torch.where(finite & (error > 0), after / error, torch.where(after > error, torch.inf, 1.0))
            ratio = torch.where(finite, ratio, 0.0)
            elements += int(finite.sum())
            wider += int((ratio > 1 + 1e-12).sum())
            judged_no_more += int((finite & after.isinf()).sum())
            most = float(ratio.max()) if ratio.numel() else 0.0
            if most > worst.get(name, (0.0, ""))[0]:
                worst[name] = most, case.json
    click.echo(f"{len(kept) - other_inputs} cases, {other_inputs} have other inputs now")
    click.echo(f"{elements} elements had a finite tolerance; wider {wider}, of these infinite {judged_no_more}")
    for name, (most, text) in worst.items():
        click.echo(f"{name}: largest ratio {most:.6g}" + (f" in {text}" if most > 1 + 1e-12 else ""))


@click.command()
@click.argument("commit")
@click.option("--cases", "count", default=1000)
@click.option("--seed", default=0)
@click.option("--keep", type=Path, help="Only keep this tree's tolerances in a file.")
def main(commit: str, count: int, seed: int, keep: Path | None) -> None:
    """Compare tolerances with those of COMMIT."""
    if keep is not None:
        _keep(keep, count, seed)
        return
    with tempfile.TemporaryDirectory() as folder:
        tree, file = Path(folder, "tree"), Path(folder, "kept.pt")
        archive = subprocess.run(["git", "archive", commit], check=True, capture_output=True).stdout
        tree.mkdir()
        subprocess.run(["tar", "xf", "-", "-C", tree], input=archive, check=True)
        arguments = [commit, "--cases", str(count), "--seed", str(seed), "--keep", str(file)]
        environment = os.environ | {"PYTHONPATH": str(tree)}
        subprocess.run([sys.executable, __file__, *arguments], cwd=tree, check=True, env=environment)
        _compare(torch.load(file, weights_only=True))


if __name__ == "__main__":
    main()
