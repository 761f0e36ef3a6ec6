"""Check an implementation now: what a test calls, or is made of."""

from pathlib import Path

from mhc.implementation import Implementation
from mhc.observation import interrupts_noted
from mhc.testing.options import Options, place
from mhc.testing.run import Run


def check(
    implementation: Implementation,
    *,
    cases: int | None = None,
    seed: int = 0,
    device: str = "",
    regressions: Path | None = None,
) -> None:
    """Replay the fixtures of an implementation, then draw cases, run it on each, and judge each by the gates that it draws.

    It runs in this process, where a crash or a hang of the kernel is one of this process; in a process of its own if `env`
    names variables that are not set here. The same seed draws the same cases. `python -m mhc.fuzz` draws larger shapes.

    Args:
        cases: how many to draw; if not given, `max_examples` of Hypothesis' profile. --mhc-cases has precedence.
        seed: of the cases. --hypothesis-seed has precedence.
        device: "cpu" or "cuda"; if not given, the first of the implementation's that is there. --mhc-device has precedence.
        regressions: folder of fixtures; if not given, that of the options, and none without the plugin of pytest.

    Raises:
        AssertionError: a case fails, shown as small as it could be made; or no case was judged.
        ImplementationError: variables that `env` names are not set, and no other process can load the implementation, since
            no module has it under a name.
        pytest.skip.Exception: the implementation does not run on the device, or there is no such device.
    """
    __tracebackhide__ = True
    text = failures(implementation, cases=cases, seed=seed, device=device, regressions=regressions)
    if text:
        raise AssertionError(text)


def failures(
    implementation: Implementation,
    *,
    cases: int | None,
    seed: int,
    device: str,
    regressions: Path | None = None,
    module: str = "",
) -> str:
    """Return what `check` raises: the fixtures that fail, or else the first failing case, or that none was judged; else "".

    Args:
        module: the test's, which names the implementation only if no other module does.
    """
    __tracebackhide__ = True
    options = Options.of(cases, seed, regressions)
    run = Run(implementation, place(implementation, device, options), options, module=module)
    try:
        with interrupts_noted():
            return run.replayed() or run.drawn()
    finally:
        run.stop()
