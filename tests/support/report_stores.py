"""Stores of campaigns that never ran: one as after a long night, one with hostile text."""

import json
import random
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from mhc import default_case, load
from mhc.fuzz.campaign.store import FILE, Store
from mhc.fuzz.findings.finding import Reduction, Step, finding
from mhc.fuzz.findings.fingerprint import Fingerprint
from mhc.fuzz.worker.protocol import Checked
from mhc.operator import OPERATORS
from mhc.oracles.error_map import error_map
from mhc.oracles.verdict import failed
from mhc.strategies.regions import labels

NAMES = ("golden", "manual", "triton-interpreted", "tilelang-c", "tir", "chunked")
WHY = ("refused", "raises RuntimeError")
RATES = (6, 6, 3, 2, 1, 4)
HOSTILE = "<script>alert('1')</script> \"quoted\" & \x1b[31mred\x1b[0m \x00\u202e\ud800 | `code` ]]>\nline " + "x" * 10_000
SUBJECTS = ("h_in", "h_post", "h_res", "inv_rms", "h_mix", "h_pre", "dx", "dphi", "dalpha", "dbias", "dgamma")
ENVIRONMENT = {
    "python": "3.11.7",
    "platform": "Linux-6.1-x86_64",
    "processor": "x86_64, AVX512, 16 cores",
    "packages": {
        "mhc-fuzz": "0.1.0",
        "torch": "2.13.0+cpu",
        "triton": "3.7.0",
        "tilelang": "0.1.8",
        "hypothesis": "6.150.0",
    },
    "cuda": "none",
    "devices": [],
    "variables": {"TRITON_INTERPRET": "1"},
}

FOUND = finding("manual", load("manual"), default_case(), failed("bound", "dx", "value", ""))


def document(
    implementation: str, subject: str, symptom: str, message: str, oracle: str = "bound", **extra: Any
) -> tuple[str, dict[str, Any]]:
    """A finding's id and document."""
    fingerprint = Fingerprint(
        operator="mhc_pre", implementation=implementation, oracle=oracle, subject=subject, symptom=symptom
    )
    return fingerprint.id, {
        "fingerprint": asdict(fingerprint),
        "implementation": "my_kernel.py:IMPL" if implementation == "chunked" else implementation,
        "message": message,
        "environment": ENVIRONMENT,
        "case": json.loads(default_case(n=2, D=3).to_json()),
        **extra,
    }


def reduction(before: int, after: int, checks: int, reproduced: int = 3, runs: int = 3) -> dict[str, Any]:
    """What minimising says of itself."""
    steps = ((2, before), (checks // 3, (before + after) // 2), (checks // 2, after), (2 * checks // 3, after))
    return asdict(
        Reduction(
            elements_before=before,
            elements=after,
            checks=checks,
            seconds=checks / 7,
            reproduced=reproduced,
            runs=runs,
            steps=tuple(Step(checks=at, elements=left, sizes={"D": left}) for at, left in steps),
        )
    )


def located() -> dict[str, Any]:
    """A case as it was drawn, with a pinned schedule, and where its dx is wrong: the last columns, and one NaN."""
    case = default_case(B=2, S=24, n=2, D=72)
    case = replace(case, schedules={"tilelang-c": {"block_tokens": 8, "backward_block_D": 16, "warps": 4}})
    ratio = torch.full(case.table.result_specs["dx"].shape(case.sizes), 0.05, dtype=torch.float64)
    ratio[..., 64:] = 1e5
    ratio[:, :, 0, :9] = 0.7
    ratio[0, 8:16, :, 16:32] = -1.0
    wrong = torch.zeros(ratio.shape, dtype=torch.bool)
    wrong[1, 5, 0, 3] = True
    return {"case": json.loads(case.to_json()), "errors": asdict(error_map(ratio, wrong))}


def night(folder: Path, *, cases: int = 1200, hours: float = 2.0, seed: int = 1) -> Store:
    """Two hours of six implementations: three legs, five findings, holes in the coverage."""
    store = Store.create(folder / FILE)
    draw, seconds = random.Random(seed), hours * 3600
    aspects: dict[str, list[str]] = {}
    for label in labels(OPERATORS["mhc_pre"]):
        aspects.setdefault(label.partition(": ")[0], []).append(label)
    holes = {"tilelang-c": {"dtype: float64", "layout: expanded", "layout: stepped"}, "tir": {"tokens: 0", "dtype: float64"}}
    texts = [default_case(n=n, D=D, dtype=dtype).json for n in (1, 4) for D in (5, 33) for dtype in ("float32", "bfloat16")]
    found = _findings()
    with store.batch():
        store.set_meta(
            seed=seed,
            device="cpu",
            workers=6,
            implementations=[{"name": name, "spec": name} for name in NAMES[:-1]]
            + [{"name": "chunked", "spec": "my_kernel.py:IMPL"}],
            environment=ENVIRONMENT,
            command=f"python -m mhc.fuzz --hours {hours:g} --seed {seed} --impl my_kernel.py:IMPL",
            budget=f"{hours:g} hours",
            against=["liger.py:IMPL"],
            partners=["liger", "never"],
            fixtures={found[2][0]: "tests/regressions/3a5f0c11.json", found[3][0]: "tests/regressions/77ab9e02.json"},
        )
        for _ in range(cases):
            name = draw.choices(NAMES, RATES)[0]
            refused = name in {"tilelang-c", "tir"} and draw.random() < 0.3
            seen = frozenset(draw.choice(listed) for listed in aspects.values()) - holes.get(name, set())
            fails = draw.random() < 0.01
            ratios = {} if refused else {one: 2.0 ** min(-0.01, draw.gauss(-4, 5)) for one in SUBJECTS}
            if fails and ratios:
                ratios["dx"] = 2.0 ** draw.uniform(0.5, 12)
            running = draw.random()
            other = "compared with liger" if draw.random() < 0.8 else f"not compared with liger: {draw.choice(WHY)}"
            spent = {"running": running, "reference": 0.3, "checking": running + 0.9, "drawing": 0.2}
            checked = Checked(
                case=draw.choice(texts),
                refused="odd D" if refused else "",
                findings=(FOUND,) if fails and ratios else (),
                ratios=ratios,
                regions=seen,
                seconds=spent,
                compared=() if refused else (other,),
                compiled=draw.random() < 0.2 if name in {"tilelang-c", "tir"} else 0,
            )
            at = seconds * draw.random()
            if not (name == "tir" and at > seconds * 0.7):
                store.end(0, name, checked, at)
        for name in NAMES:
            store.count(name, "starting", draw.uniform(5, 60))
        for at, (id_, one) in enumerate(found):
            store.keep(id_, one, ("raw", "shrunk", "minimal", "minimal", "minimal")[at], seconds * (at + 0.4) / 6)
            for _ in range(at * 7):
                store.seen(id_)
        for name, reason in (
            ("tir", "SIGSEGV"),
            ("tir", "hang"),
            ("chunked", "exit 7"),
            ("tilelang-c", "memory over 8 GiB"),
        ):
            for _ in range(draw.randrange(1, 9)):
                store.restart(name, reason)
        store.begin(2, "tir", texts[0], seconds)
        for share, ended in ((0.3, "killed"), (0.1, "interrupted"), (0.6, "budget spent")):
            store.tell_leg(store.begin_leg(1.7e9 + 1e4 * share), share * seconds, ended)
    return store


def hostile(folder: Path) -> Store:
    """A campaign in which everything that can be text is hostile text."""
    store = Store.create(folder / FILE)
    plain = HOSTILE.replace("\ud800", "")  # SQLite's text is UTF-8; what goes through JSON may be anything
    name = plain[:60]
    with store.batch():
        store.set_meta(
            device="cpu",
            implementations=[{"name": name, "spec": HOSTILE}],
            peers=[plain],
            command=HOSTILE,
            seed=1,
            budget=HOSTILE,
        )
        id_, found = document(name, HOSTILE, HOSTILE, HOSTILE)
        store.keep(id_, found, "raw", 3.0)
        store.set_meta(fixtures={id_: HOSTILE})
        checked = Checked(
            case=default_case().json,
            ratios={name: 0.5},
            regions=frozenset({name, f"x: {name}"}),
            seconds={"checking": 1.0},
            compared=(f"not compared with {plain}: {plain}",),
        )
        store.end(0, name, checked, 4.0)
        store.restart(name, plain)
        store.begin(0, name, plain, 5.0)
        store.tell_leg(store.begin_leg(0.0), 10.0, plain)
    return store


def _findings() -> list[tuple[str, dict[str, Any]]]:
    where = "dx[0, 17, 2, 640] = 0.31, float64 0.28, bound 0.004"
    return [
        document("chunked", "h_post", "value", "h_post[0, 0, 1] = 1.001, float64 1, bound 8.9e-08"),
        document("tilelang-c", "dx", "value", where, reduction=reduction(27744, 10, 96, 2, 3), drawn=located()),
        document(
            "tir",
            "process",
            "SIGSEGV",
            "the process ended by SIGSEGV while it ran the forward for the first time",
            oracle="liveness",
            reduction=reduction(6000, 6, 41),
        ),
        document(
            "triton-interpreted",
            "h_in",
            "class",
            "h_in[0, 0, 0] = 0, float64 NaN: a NaN of x must reach it",
            oracle="nonfinite",
            reduction=reduction(512, 6, 118),
        ),
        document(
            "tir",
            "dphi",
            "all zero",
            "dphi is zero everywhere; float64 is not",
            oracle="liveness",
            reduction=reduction(9, 6, 30),
        ),
    ]
