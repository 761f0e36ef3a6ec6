"""Run steps of probe programs, each in a process of its own, and say what came of it.

As a program: reads `{"workers": 2, "steps": [[file, function or null], ...]}` from standard input and writes a list of
outcomes in the same order to standard output. TileLang is imported and used once; each step then runs in a fork of a process
that has done nothing else, so that no step can disturb another and one that kills its process is an outcome like any other.
The function `null` stands for the file itself, run as a program.
"""

import importlib.util
import json
import os
import runpy
import signal
import sys
import tempfile
import traceback
import unittest
from pathlib import Path
from types import FunctionType
from typing import IO, Any

SECONDS = 120  # for one step; a hang becomes "dies" with SIGALRM


def attempt(path: str, function: str | None) -> dict[str, str]:
    """What calling the function gives: `returns` its value, `raises`, or `absent` where the step does not apply here."""
    try:
        if function is None:
            runpy.run_path(path, run_name="__main__")
            return {"kind": "returns", "value": "None"}
        spec = importlib.util.spec_from_file_location("program", path)
        assert spec is not None
        assert spec.loader is not None
        program = importlib.util.module_from_spec(spec)
        sys.modules["program"] = program  # TileLang reads a kernel's source through its module
        spec.loader.exec_module(program)
        return {"kind": "returns", "value": repr(getattr(program, function)())}
    except unittest.SkipTest as reason:
        return {"kind": "absent", "text": str(reason)}
    except BaseException as error:
        traceback.print_exc()
        name = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
        return {"kind": "raises", "type": name, "message": str(error)}


def start(path: str, function: str | None) -> tuple[int, IO[bytes], IO[bytes]]:
    """Fork; the child's answer and everything it prints go to the two files."""
    answer, printed = (tempfile.TemporaryFile() for _ in range(2))  # noqa: SIM115 - read after the child has ended
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return child, answer, printed
    for stream in (1, 2):
        os.dup2(printed.fileno(), stream)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(SECONDS)
    outcome = attempt(path, function)
    sys.stdout.flush()
    sys.stderr.flush()
    answer.write(json.dumps(outcome).encode())
    answer.flush()
    os._exit(0)


def finish(status: int, answer: IO[bytes], printed: IO[bytes]) -> dict[str, str]:
    """The outcome of a step whose process has ended; `text` is all that it printed, tracebacks included."""
    answer.seek(0)
    printed.seek(0)
    text = printed.read().decode(errors="replace")
    if os.WIFSIGNALED(status):
        return {"kind": "dies", "signal": signal.Signals(os.WTERMSIG(status)).name, "text": text}
    said = answer.read()
    outcome: dict[str, str] = (
        json.loads(said) if said else {"kind": "exits", "value": str(os.waitstatus_to_exitcode(status))}
    )
    return {"text": text, **outcome}


def warm() -> None:
    """Import TileLang and lower an empty kernel: the first lowering of a process costs half a second, here paid once."""
    import tilelang  # noqa: PLC0415 - in the runner's process, never in the suite's
    import tilelang.language as T  # noqa: PLC0415
    from tvm.target import Target  # noqa: PLC0415

    def empty(frame: dict[str, Any]) -> Any:
        @T.prim_func  # type: ignore[untyped-decorator]
        def kernel(x: T.Tensor((1,), "float32")):  # type: ignore[no-untyped-def, valid-type]
            with T.Kernel(1, **frame) as _:
                x[0] = 0.0

        return kernel

    for target, frame in ((Target("c"), {"is_cpu": True}), (Target("cuda -arch=sm_90"), {"threads": 1})):
        with target:
            tilelang.lower(empty(frame), target=target)


def run(steps: list[tuple[str, str | None]], workers: int) -> list[dict[str, str]]:
    """Run the steps, so many at a time."""
    warm()
    outcomes: list[dict[str, str]] = [{} for _ in steps]
    running: dict[int, tuple[int, IO[bytes], IO[bytes]]] = {}
    todo = list(enumerate(steps))
    while todo or running:
        while todo and len(running) < workers:
            index, (path, function) = todo.pop(0)
            child, answer, printed = start(path, function)
            running[child] = (index, answer, printed)
        child, status = os.wait()
        index, answer, printed = running.pop(child)
        outcomes[index] = finish(status, answer, printed)
    return outcomes


def show(namespace: dict[str, Any]) -> None:
    """What `python tests/probes/NAME.py` prints: each step's outcome. Steps are the functions without arguments."""
    steps = [
        name
        for name, value in namespace.items()
        if isinstance(value, FunctionType) and value.__module__ == "__main__" and not value.__code__.co_argcount
    ]
    for name, outcome in zip(steps, run([(namespace["__file__"], name) for name in steps], workers=1), strict=True):
        sys.stdout.write(f"{name}: {describe(outcome)}\n")


def describe(outcome: dict[str, str]) -> str:
    """One line."""
    said = outcome.get("value") or outcome.get("message") or outcome["text"].strip().rpartition("\n")[2]
    words = [outcome["kind"], outcome.get("type", ""), outcome.get("signal", ""), " ".join(said.split())]
    return " ".join(filter(None, words))[:300]


if __name__ == "__main__":
    task = json.load(sys.stdin)
    sys.path.insert(0, str(Path(__file__).parent))
    json.dump(run([(path, function) for path, function in task["steps"]], task["workers"]), sys.stdout)
