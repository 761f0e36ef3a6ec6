"""Run candidate programs in another process, and return what each does as text, equal for equal behaviour."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from mhc.upstream.program.script import Script, assigned
from mhc.upstream.reduce import prober
from mhc.upstream.verify import isolated

SECONDS = 120.0


class Probe:
    """A started prober; to be closed.

    Args:
        whole: what it is to try smaller versions of. witnesses: as `Program` has them.
        python: the interpreter and its options. variables: of its environment.
    """

    def __init__(
        self,
        whole: Script,
        witnesses: bytes,
        python: Sequence[str] = (sys.executable, "-P"),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._stack = ExitStack()
        environment, self._place = self._stack.enter_context(isolated())
        self._variants = ""
        if witnesses:
            path = self._place / "witnesses.pt"
            path.write_bytes(witnesses)
            self._variants = str(path)
        self._count = 0
        self.seconds = SECONDS
        self.guarded = True
        self._process = subprocess.Popen(
            [*python, str(Path(prober.__file__))],
            env={**environment, **whole.environment, **(variables or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._stack.close()

    def observe(self, script: Script, wanted: str = "") -> str:
        """Return what the launches of a script do, on its own inputs and on the witnesses; its end is not run.

        Args:
            wanted: what another script did; as soon as this one differs, it stops.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(
            json.dumps({**self._task(script), "wanted": json.loads(wanted or "{}").get("seen")}) + "\n"
        )
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        return answer.strip() or '{"died": "prober"}'

    def _task(self, script: Script) -> dict[str, Any]:
        self._count += 1
        enclosed = bool(script.around)
        imports = "\n".join(["import torch", *sorted(script.imports)])
        return {
            "imports": imports,
            "definitions": "\n\n".join(["import math", "import os", "import sys", imports, *script.definitions.values()])
            + "\n",
            "given": "\n".join(script.given_lines),
            "compiled": "\n".join(script.compiled),
            "made": [] if enclosed else [(name, "\n".join(assigned(name, text))) for name, text in script.used.items()],
            "body": _body(script) if enclosed else "\n".join(script.launches),
            "observed": list(script.observed),
            "device": script.device,
            "variants": self._variants,
            "guarded": self.guarded and script.alone,
            "seconds": self.seconds,
            "file": str(self._place / f"candidate_{self._count}.py"),
        }


def _body(script: Script) -> str:
    """Return the body without its `try`, so that it raises; or as a function, for `observed` to call."""
    head = script.around if script.around.startswith("def ") else "if True:"
    return "\n".join([head, *(f"    {line}" for line in script.body)])
