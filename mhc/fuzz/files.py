"""Files that are replaced as a whole: whoever reads one reads the old or the new one."""

import os
from pathlib import Path


def replace_text(path: Path, text: str) -> None:
    """Write `text` to `path`, all of it or nothing."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
