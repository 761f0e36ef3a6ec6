"""Results by name, kept in a file as they come, so that a run that was cut short goes on where it stopped."""

import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar

from mhc.files import replace_text


class Named(Protocol):
    """An item of work, or a result."""

    @property
    def name(self) -> str: ...


Item = TypeVar("Item", bound=Named)
Result = TypeVar("Result", bound=Named)


class Results(Generic[Result]):
    """Results of one kind.

    Args:
        kind: the dataclass of a result. key: where the file has them. path: the file; None keeps nothing.
        settings: what results depend on; a file of other settings counts for nothing.

    Attributes:
        done: the results, by name.
    """

    def __init__(self, kind: type[Result], key: str, path: Path | None = None, **settings: int | float | str) -> None:
        self._key, self._path, self._settings = key, path, settings
        self._lock = Lock()
        self.done: dict[str, Result] = {}
        if path is not None and path.exists():
            document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if document["settings"] == settings:
                self.done = {one["name"]: kind(**one) for one in document[key]}

    def waiting(self, items: Iterable[Item]) -> list[Item]:
        """Return the items that have no result yet."""
        return [item for item in items if item.name not in self.done]

    def complete(
        self,
        items: Sequence[Item],
        work: Callable[[Item], Result | None],
        jobs: int,
        on_result: Callable[[Item, Result], None] = lambda item, result: None,
    ) -> list[Result]:
        """Work on the items that have no result yet, `jobs` at a time; return the results that there are, in their order.

        `work` returns None for no result. Where it raises, items that have not begun do not begin.
        """

        def one(item: Item) -> None:
            result = work(item)
            if result is not None:
                with self._lock:  # at once: what ends the others must not lose it
                    self.done[result.name] = result
                    self._write()
                    on_result(item, result)

        with ThreadPoolExecutor(jobs) as pool:
            try:
                for future in as_completed([pool.submit(one, item) for item in self.waiting(items)]):
                    future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return [self.done[item.name] for item in items if item.name in self.done]

    def _write(self) -> None:
        if self._path is not None:
            document = {"settings": self._settings, self._key: [vars(one) for one in self.done.values()]}
            replace_text(self._path, json.dumps(document, indent=1) + "\n")
