"""What `pip install tilelang==0.1.8` asks for beside it."""
# mypy: ignore-errors

from importlib import metadata

import tilelang
from packaging.requirements import Requirement


def does_the_wheel_allow_a_version_that_breaks_it():
    for line in metadata.requires("tilelang"):
        wanted = Requirement(line)
        if wanted.name == "apache-tvm-ffi":
            return {version: version in wanted.specifier for version in ("0.1.9", "0.1.12", "0.1.15.post2")}
    return None


def instead_pinned():
    return tilelang.__version__, metadata.version("apache-tvm-ffi")


if __name__ == "__main__":
    from runner import show

    show(globals())
