"""Fake interpreters and a fake registry: tests of the matrix and of rechecks run repros on them in milliseconds."""

import base64
import hashlib
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path

FAILS = 'echo "x: expected 1.0, actual 2.0"; echo REPRODUCED; exit 1'
PASSES = 'echo "x: expected 1.0, actual 1.0"; echo "NOT REPRODUCED"; exit 0'
OTHER = 'echo "OTHER: TypeError: no such argument"; exit 2'
HANGS = "sleep 20"
READY = "echo READY"


def sometimes(count: Path, failing: str) -> str:
    """Return a repro that fails in the runs whose numbers are named, and passes in the others; `count` keeps the number."""
    return f"echo x >> {count}; case $(wc -l < {count}) in {failing}) {FAILS};; *) {PASSES};; esac"


def interpreter(place: Path, version: str, repro: str, *, to: str = "tilelang", trial: str = READY) -> Path:
    """Write a script that stands for a Python with a release: `trial` answers the trivial program, `repro` all others."""
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"python-{version}"
    has = f'echo "HAS {to}={version} torch=2.0"'
    path.write_text(f'#!/bin/sh\ncase "$1" in\ntrial.py) {has}; {trial};;\n*) {repro};;\nesac\n', encoding="utf-8")
    path.chmod(0o755)
    return path


def exported(place: Path, *, to: str = "tilelang", own: str = "0.1.8", repro: str = "T.Kernel(1, is_cpu=True)\n") -> Path:
    """A folder as export writes it."""
    place.mkdir(parents=True)
    document = {
        "finding": {"fingerprint": {"subject": "dx"}},
        "to": to,
        "needs": "c" if to == "tilelang" else "interpreter",
        "symptom": "value",
        "environment": {
            "packages": {to: own},
            "python": "3.11",
            "platform": "Linux",
            "processor": "one",
            "cuda": "none",
            "devices": [],
            "variables": {},
        },
        "told": {
            "at": "dx[0]",
            "where": "a kernel",
            "values": "dx[0]: expected 1.0, actual 2.0",
            "rate": "always",
            "control": "none",
            "form": "whole",
            "whole": len(repro.splitlines()),
            "table": [],
            "source": "",
        },
    }
    (place / "export.json").write_text(json.dumps(document), encoding="utf-8")
    (place / "repro.py").write_text(repro, encoding="utf-8")
    return place


def registry(place: Path, wheels: Mapping[tuple[str, str], Mapping[str, str]]) -> str:
    """The address of an index that has a wheel for each (distribution, version), with these files in it."""
    for (name, version), files in wheels.items():
        folder = place / name
        folder.mkdir(parents=True, exist_ok=True)
        stem = f"{name.replace('-', '_')}-{version}"
        _wheel(folder / f"{stem}-py3-none-any.whl", name, version, stem, files)
        links = "".join(f'<a href="{one.name}">{one.name}</a>\n' for one in sorted(folder.glob("*.whl")))
        (folder / "index.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>", encoding="utf-8")
    return place.as_uri()


def _wheel(path: Path, name: str, version: str, stem: str, files: Mapping[str, str]) -> None:
    inside = {
        **files,
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = f"{stem}.dist-info/RECORD"
    lines = []
    for one, text in inside.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        lines.append(f"{one},sha256={digest},{len(text.encode())}\n")
    with zipfile.ZipFile(path, "w") as file:
        for one, text in {**inside, record: "".join([*lines, f"{record},,\n"])}.items():
            file.writestr(one, text)


FAKE_TILELANG = {
    "tilelang/__init__.py": "def compile(*_, **__):\n    return lambda x, y: y.copy_(x + x)\n",
    "tilelang/language.py": "def prim_func(function):\n    return function\n\ndef Tensor(*_):\n    return None\n",
}
