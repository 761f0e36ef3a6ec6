"""JSON Schemas of the files that a run writes and reads: cases, findings, fixtures and programs.

What cannot be said in a schema, such as that a literal's index fits its tensor, is checked when a file is read.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from mhc.environment import Environment
from mhc.fuzz.findings.finding import Reduction
from mhc.operator import STORAGE_DTYPES
from mhc.operator_json import Name, OperatorText, Size
from mhc.programs.grammar import Program
from mhc.programs.triton.grammar import TritonProgram
from mhc.recipe import INTEGER_KINDS, RECIPE_KINDS

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_KINDS = list(dict.fromkeys((*RECIPE_KINDS, *INTEGER_KINDS)))

Number = float | Literal["nan", "inf", "-inf"]
Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Dtype = Annotated[str, Meta(extra_json_schema={"enum": list(STORAGE_DTYPES)})]
Schedules = dict[str, dict[str, int | str | bool]]


class LayoutText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A `mhc.recipe.Layout`."""

    order: tuple[Count, ...] = ()
    step: Positive = 1
    pad: Count = 0
    gap: Count = 0
    offset: Count = 0
    expand: tuple[Count, ...] = ()


class RecipeText(msgspec.Struct, forbid_unknown_fields=True):
    """A `mhc.recipe.Recipe`."""

    kind: Annotated[str, Meta(extra_json_schema={"enum": _KINDS})] = "normal"
    seed: Annotated[int, Meta(ge=0, extra_json_schema={"maximum": 2**64 - 1})] = 0
    scale: Number = 1.0
    period: Count = 0
    rows: Count = 0
    literals: tuple[tuple[tuple[Count, ...], Number], ...] = ()
    layout: LayoutText = LayoutText()


class _Case(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, tag_field="schema"):
    dtype: Dtype = "bfloat16"
    scalars: dict[Name, bool | Number] = {}
    tensors: dict[Name, RecipeText] = {}
    schedules: Schedules = {}


class _FlatCase(_Case, kw_only=True):
    operator: Literal["mhc_pre"] = "mhc_pre"
    B: Count = 1
    S: Count = 1
    n: Annotated[int, Meta(ge=1, le=16)] = 1
    D: Positive = 1


class CaseOfSchema1(_FlatCase, tag=1):
    """A case of mHC Forward Pre."""


class CaseOfSchema2(_FlatCase, tag=2):
    """A case of mHC Forward Pre in which a recipe has `period` or `rows`."""


class CaseOfSchema3(_Case, tag=3, kw_only=True):
    """A case of any operator, with the operator's description where a function declares it."""

    operator: Literal["mhc_pre"] | OperatorText = "mhc_pre"
    sizes: dict[Name, Size] = {}


CaseText = CaseOfSchema1 | CaseOfSchema2 | CaseOfSchema3


class FingerprintText(msgspec.Struct, forbid_unknown_fields=True):
    """A `mhc.fuzz.findings.fingerprint.Fingerprint`; `against` only where the bug is a difference of two implementations."""

    operator: str
    implementation: str
    oracle: str
    subject: str
    symptom: str
    against: str | UnsetType = UNSET


class FindingText(msgspec.Struct, kw_only=True):
    """A `mhc.fuzz.findings.finding.Finding`, with the environment in which it was found."""

    fingerprint: FingerprintText
    implementation: str
    against: str | UnsetType = UNSET
    message: str = ""
    reduction: Reduction | None = None
    environment: Environment | UnsetType = UNSET
    case: Any


def schemas() -> dict[str, dict[str, Any]]:
    """Return the JSON Schema of each kind of file by its name: case, program, finding and fixture."""
    _, parts = msgspec.json.schema_components((CaseText, Program, TritonProgram, FindingText), ref_template="#/$defs/{name}")
    case: dict[str, Any] = {
        "anyOf": [{"$ref": f"#/$defs/{one.__name__}"} for one in CaseText.__args__],
        "required": ["schema"],
    }
    program = {"anyOf": [{"$ref": "#/$defs/Program"}, {"$ref": "#/$defs/TritonProgram"}]}
    finding = {"$ref": "#/$defs/FindingText"}
    parts["FindingText"]["properties"]["case"] = {"anyOf": [{"$ref": "#/$defs/Case"}, program]}
    parts["Case"] = case
    roots: dict[str, dict[str, Any]] = {
        "case": {"$ref": "#/$defs/Case"},
        "program": program,
        "finding": finding,
        "fixture": {"anyOf": [finding, {"$ref": "#/$defs/Case"}, program]},
    }
    return {
        name: {"$schema": _DRAFT, "title": f"mhc-fuzz {name}", **root, "$defs": _used(root, parts)}
        for name, root in roots.items()
    }


def _used(root: Any, parts: dict[str, Any]) -> dict[str, Any]:
    """Return the parts to which `root` refers, and those to which they refer."""
    found: dict[str, Any] = {}
    waiting = [root]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            name = str(one.get("$ref", "")).removeprefix("#/$defs/")
            if name and name not in found:
                found[name] = parts[name]
                waiting.append(parts[name])
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)
    return dict(sorted(found.items()))
