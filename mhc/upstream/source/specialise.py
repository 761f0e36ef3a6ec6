"""Specialise kernels, and the functions that they use, to the recorded launches."""

import ast
import importlib
from collections.abc import Callable, Mapping, Sequence

from mhc.upstream.source.definitions import Closure, Key, calls, closure
from mhc.upstream.source.flat import literal
from mhc.upstream.source.fold import Fold, constant

Constants = dict[str, ast.expr]
Choose = Callable[[ast.FunctionDef], set[str]]
"""The parameters of a function that may become constants."""


class Specialisation:
    """The closure of entries, each function rewritten for what every caller gives it.

    Args:
        known: constants for the entries' own parameters and names. texts: expressions in them that are known by their text.
        choose: which parameters of the functions they lead to may become constants.
        kinds: types of the modules' constants that are written out. absent: as for `Fold`.
    """

    def __init__(
        self,
        entries: Sequence[Key],
        known: Mapping[Key, Constants],
        texts: Mapping[Key, Constants],
        choose: Choose,
        kinds: tuple[type, ...] = (bool,),
        absent: frozenset[str] = frozenset(),
    ) -> None:
        self._entries, self._choose, self._kinds, self._absent = entries, choose, kinds, absent
        self._before: dict[Key, list[str]] = {}
        self._known = {key: dict(one) for key, one in known.items()}
        self._texts = {key: dict(one) for key, one in texts.items()}
        self.closure = self._closure()
        while self._learn():
            self.closure = self._closure()
        for key, node in self.closure.definitions.items():
            self._cut(key, node)

    def _closure(self) -> Closure:
        return closure(self._entries, self._fold)

    def _fold(self, key: Key, node: ast.stmt) -> ast.stmt:
        if not isinstance(node, ast.FunctionDef):
            return node
        known = {**_globals(key[0], node, self._kinds), **self._known.get(key, {})}
        folded = Fold(known, self._texts.get(key), self._absent).visit(node)
        assert isinstance(folded, ast.FunctionDef)
        return folded

    def _learn(self) -> bool:
        """Constants that every call of a function gives to one parameter; whether there were more than before."""
        made: dict[Key, list[tuple[Key, ast.Call]]] = {}
        for caller, node in self.closure.definitions.items():
            for callee, call in calls(caller[0], node):
                made.setdefault(callee, []).append((caller, call))
        learnt = False
        for callee, found in made.items():
            function = self.closure.definitions.get(callee)
            if callee in self._entries or not isinstance(function, ast.FunctionDef):
                continue
            names = [one.arg for one in function.args.args]
            for at, name in enumerate(names):
                given = [call.args[at] if at < len(call.args) else None for _, call in found]
                first = given[0]
                if first is None or any(one is None or ast.unparse(one) != ast.unparse(first) for one in given):
                    first = None
                known = self._known.setdefault(callee, {})
                if first is not None and name not in known and name in self._choose(function) and literal(first, ("tl",)):
                    known[name] = first
                    learnt = True
                text = f"{name}.dtype.element_ty"
                types = {
                    ast.unparse(self._texts.get(caller, {}).get(f"{ast.unparse(one)}.dtype.element_ty", ast.Constant(None)))
                    for (caller, _), one in zip(found, given, strict=True)
                    if one is not None
                }
                of = self._texts.setdefault(callee, {})
                if len(types) == 1 and text not in of and (found_type := types.pop()) != "None":
                    of[text] = ast.parse(found_type, mode="eval").body
                    learnt = True
        return learnt

    def _cut(self, key: Key, node: ast.stmt) -> None:
        """Parameters that are constants now go, and so do the arguments of calls."""
        for callee, call in calls(key[0], node):
            function = self.closure.definitions.get(callee)
            gone = self._known.get(callee, {})
            if isinstance(function, ast.FunctionDef) and gone:
                names = self._parameters(callee)
                call.args = [one for name, one in zip(names, call.args, strict=False) if name not in gone]
                call.keywords = [one for one in call.keywords if one.arg not in gone]
        if isinstance(node, ast.FunctionDef):
            gone = self._known.get(key, {})
            self._parameters(key)
            node.args.args = [one for one in node.args.args if one.arg not in gone]
            kept = [
                (one, default)
                for one, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
                if one.arg not in gone
            ]
            node.args.kwonlyargs, node.args.kw_defaults = [one for one, _ in kept], [default for _, default in kept]

    def _parameters(self, key: Key) -> list[str]:
        """As they were before any went."""
        if key not in self._before:
            function = self.closure.definitions[key]
            assert isinstance(function, ast.FunctionDef)
            self._before[key] = [one.arg for one in function.args.args]
        return self._before[key]


def compile_time(function: ast.FunctionDef) -> set[str]:
    """Triton's parameters that its compiler must know."""
    return {
        one.arg
        for one in function.args.args
        if one.annotation is not None and ast.unparse(one.annotation).endswith("constexpr")
    }


def undecorated(function: ast.FunctionDef) -> set[str]:
    """Every parameter of a plain Python function; none of a kernel or macro."""
    return set() if function.decorator_list else {one.arg for one in function.args.args}


def _globals(module: str, node: ast.FunctionDef, kinds: tuple[type, ...]) -> Constants:
    """Names of the module's top level that stand for a constant of these types."""
    values = vars(importlib.import_module(module))
    found: Constants = {}
    for one in ast.walk(node):
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load):
            value = values.get(one.id)
            value = getattr(value, "value", value)
            if type(value) in kinds:
                found[one.id] = constant(value)
    return found
