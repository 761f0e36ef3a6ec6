"""`python -m mhc.fuzz`."""

import os
import threading

_PARTING = 5.0  # seconds that processes of a GPU may take to end, behind the reports


def run() -> None:
    """Run the command line, and end soon after it: whatever has not ended by then is left behind."""
    # here, so that a worker, which imports this module anew, does without
    from mhc.terminal import open_standard  # noqa: PLC0415

    open_standard()  # before anything else is opened

    from mhc.fuzz.cli.main import main  # noqa: PLC0415

    try:
        main()
    except SystemExit as end:
        from mhc.fuzz.worker.forkserver import stop_starting  # noqa: PLC0415

        stop_starting()
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        timer = threading.Timer(_PARTING, os._exit, (status,))
        timer.daemon = True
        timer.start()
        raise


if __name__ == "__main__":
    run()
