"""The text of the file that `init` writes."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mhc.fuzz.cli.init.hints import Hint
from mhc.fuzz.cli.init.shapes import Guess
from mhc.fuzz.cli.init.survey import Function

UNKNOWN = "fill in: plain PyTorch that computes what {kernel} computes, with its roundings (docs/operators.md)"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What the file is to hold.

    Attributes:
        module, root: what is imported, and from which folder. output: where the file goes.
        reference: the reference, or None for a skeleton of one.
        hints: of the operator's arguments, in order; those of kind "fixed" have one value in `fixed`.
        names: the parameter of the kernel for each argument of the operator; those that are missing are not passed.
        out: whether the kernel writes its result into an argument of this name; "" where it returns it.
        results: how many results of the kernel are compared; None for all.
    """

    source: Path
    module: str
    root: Path
    output: Path
    kernel: Function
    reference: Function | None
    hints: Mapping[str, Hint]
    fixed: Mapping[str, object]
    names: Mapping[str, str]
    guess: Guess
    dsl: str
    device: str
    out: str = ""
    results: int | None = None

    @property
    def name(self) -> str:
        """Return the operator's name, and the implementation's."""
        return (
            re.sub(r"\W+", "_", self.kernel.op.replace("::", "_") or self.kernel.name.partition(".")[0]).strip("_").lower()
        )

    @property
    def tensors(self) -> list[str]:
        return [name for name, one in self.hints.items() if one.kind in {"tensor", "index"}]

    @property
    def scalars(self) -> list[str]:
        return [name for name, one in self.hints.items() if one.kind == "float"]


def text_of(plan: Plan) -> str:
    """Return the text of the file."""
    spec = f"{plan.output.name}:IMPL"
    against = f"against {plan.reference.name}" if plan.reference else "against a reference that is still to be written"
    docstring = f'"""Checks {plan.kernel.name} of {plan.source.name} {against}: python -m mhc.fuzz --impl {spec}"""'
    folder = os.path.relpath(plan.root, plan.output.parent)
    place = "Path(__file__).parent" if folder == "." else f"Path(__file__).parent / {folder!r}"
    load = (
        f"import {plan.module} as source"
        if _importable(plan.module)
        else f"source = importlib.import_module({plan.module!r})"
    )
    lines = [
        docstring,
        "",
        *(() if _importable(plan.module) else ("import importlib",)),
        "import sys",
        "from pathlib import Path",
        *(("", "import torch") if plan.out else ()),
        "",
        "from mhc import Implementation, operator",
        "",
        f"sys.path.insert(0, str({place}))",
        f"{load}  # noqa: E402",
        "",
        "",
        *_operator(plan),
        "",
        "",
        *_forward(plan),
        "",
        "",
        *_record(plan),
    ]
    return "\n".join(lines) + "\n"


def _importable(module: str) -> bool:
    return all(one.isidentifier() for one in module.split("."))


def _operator(plan: Plan) -> list[str]:
    seen = f"by calls of {plan.reference.name} in small sizes" if plan.reference else f"from the names in {plan.kernel.name}"
    lines = [f"# Shapes were guessed {seen}. Correct them here; docs/operators.md has the notation.", "@operator("]
    for name in plan.tensors:
        lines.append(_keyword(name, repr(plan.guess.tensors[name]), plan.guess.notes.get(name, "")))
    for name, value in plan.guess.keywords.items():
        lines.append(_keyword(name, repr(value), plan.guess.notes.get(name, "")))
    loose = [name for name in plan.guess.notes if name not in plan.guess.keywords and name not in plan.guess.tensors]
    lines += [f"    # {name}: {plan.guess.notes[name]}" for name in loose]
    for name in plan.scalars:
        values = plan.hints[name].values
        shown = repr(values[0]) if len(values) == 1 else repr(values)
        lines.append(_keyword(name, shown, "what is drawn for it, the default first"))
    lines += [")", f"def {plan.name}({_signature(plan)}):"]
    if plan.reference is None:
        return [*lines, f'    raise NotImplementedError("{UNKNOWN.format(kernel=plan.kernel.name)}")']
    called = _call(f"source.{plan.reference.name}", {one: one for one in plan.hints}, plan, plan.reference)
    return [*lines, f"    return {called}"]


def _keyword(name: str, value: str, note: str) -> str:
    return f"    {name}={value.replace(chr(39), chr(34))},{f'  # {note}' if note else ''}"


def _signature(plan: Plan) -> str:
    return ", ".join([*plan.tensors, *(["*", *plan.scalars] if plan.scalars else [])])


def _call(callee: str, names: Mapping[str, str], plan: Plan, function: Function, *, extra: Sequence[str] = ()) -> str:
    """Return a call with the operator's arguments, by position as far as they are the function's first ones."""
    values = {names[one]: one if one not in plan.fixed else repr(plan.fixed[one]) for one in plan.hints if one in names}
    values |= {one: one for one in extra}
    keyword_only = {one.arg for one in function.node.args.kwonlyargs}
    shown, positional = list[str](), True
    for one in function.parameters:
        positional = positional and one.arg in values and one.arg not in keyword_only
        if one.arg in values:
            shown.append(values[one.arg] if positional else f"{one.arg}={values[one.arg]}")
    return f"{callee}({', '.join(shown)})"


def _forward(plan: Plan) -> list[str]:
    lines = [f"def forward({_signature(plan)}):"]
    if plan.out:
        lead = plan.tensors[0]
        lines.append(
            f"    {plan.out} = torch.full_like({lead}, float('nan'))  # guessed: the result has the shape of {lead}"
        )
        called = _call(f"source.{plan.kernel.name}", plan.names, plan, plan.kernel, extra=(plan.out,))
        return [*(line.replace("'", '"') for line in lines), f"    {called}", f"    return {plan.out}"]
    called = _call(f"source.{plan.kernel.name}", plan.names, plan, plan.kernel)
    if plan.results is not None:
        cut = "[0]" if plan.results == 1 else f"[:{plan.results}]"
        return [*lines, f"    return {called}{cut}  # the reference does not compute the others"]
    return [*lines, f"    return {called}"]


def _record(plan: Plan) -> list[str]:
    stage = "function" if plan.kernel.differentiable and not plan.out else "forward"
    why = "  # autograd differentiates it" if stage == "function" else ""
    if stage == "forward":
        why = "  # a backward of its own: docs/bring-your-own.md"
    lines = [
        "IMPL = Implementation(",
        f'    name="{plan.name}",',
        f"    operator={plan.name},",
        f"    {stage}=forward,{why}",
    ]
    if plan.device == "cuda":
        lines.append('    devices=("cuda",),')
    elif plan.dsl == "triton":
        lines += [
            '    env={"TRITON_INTERPRET": "1"},  # on a CPU; drop this line, and write devices=("cuda",), for a GPU',
            '    dtypes=("float32", "float16"),  # the interpreter\'s bfloat16 is inexact',
        ]
    return [*lines, ")"]
