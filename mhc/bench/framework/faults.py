"""Single-line faults in the framework itself, drawn from the syntax trees of its modules.

A site is a place in a line where one operator applies: a comparison, a number, a branch, a call. Annotations, docstrings,
messages and assertions have none: what they say is no behaviour that a test should pin.
"""

import ast
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path

_MODULES = """
    oracles/*.py oracles/bounds/*.py oracles/bounds/aten/*.py strategies/*.py mhc/upstream/verify.py
    mhc/case.py mhc/case_json.py mhc/condense.py mhc/declaration.py mhc/dense.py mhc/descent.py mhc/expression.py
    mhc/global_state.py mhc/implementation.py mhc/inputs.py mhc/memory.py mhc/notation.py mhc/observation.py mhc/operator.py
    mhc/operator_json.py mhc/outputs.py mhc/overlap.py mhc/placement.py mhc/precision.py mhc/recipe.py mhc/reference.py
    mhc/stream_order.py mhc/values.py
    mhc/fuzz/campaign/backoff.py mhc/fuzz/campaign/campaign.py mhc/fuzz/campaign/compile_budget.py
    mhc/fuzz/campaign/database.py mhc/fuzz/campaign/planner.py mhc/fuzz/campaign/results.py mhc/fuzz/campaign/scheduler.py
    mhc/fuzz/campaign/size_budget.py mhc/fuzz/campaign/store.py mhc/fuzz/campaign/triage.py mhc/fuzz/check/check.py
    mhc/fuzz/check/differential.py mhc/fuzz/findings/finding.py mhc/fuzz/findings/fingerprint.py
    mhc/fuzz/findings/known_issues.py mhc/fuzz/findings/ordering.py mhc/fuzz/minimise/minimise.py
    mhc/fuzz/minimise/passes.py mhc/fuzz/minimise/search.py mhc/fuzz/minimise/shape_passes.py
    mhc/fuzz/minimise/value_passes.py mhc/fuzz/report/unjudged.py mhc/fuzz/worker/session.py
"""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One edit of one line.

    Attributes:
        module: the file, relative to the root. line, column: where, from 1 and from 0. operator: what was changed.
        before, after: the whole line.
        names: module-level names that the line defines; empty for a line in a function.
        top: whether the line runs when the module is imported.
    """

    module: str
    line: int
    column: int
    operator: str
    before: str
    after: str
    names: tuple[str, ...] = ()
    top: bool = False

    @property
    def name(self) -> str:
        """Return its id."""
        return f"{self.module}:{self.line}:{self.column}:{self.operator}"

    def apply(self, source: str) -> str:
        """Return the module's text with the fault."""
        lines = source.splitlines(keepends=True)
        assert lines[self.line - 1].rstrip("\n") == self.before, f"{self.name}: the module is another one"
        lines[self.line - 1] = f"{self.after}\n"
        return "".join(lines)

    def diff(self) -> str:
        """Return before and after in one line, the change as `[-old-]{+new+}`, wherever the line stands."""
        head = _shared(self.before, self.after)
        most = min(len(self.before), len(self.after)) - len(head)
        tail = _shared(self.before[::-1], self.after[::-1])[:most]
        old, new = (line[len(head) : len(line) - len(tail)] for line in (self.before, self.after))
        return f"{head}{f'[-{old}-]' if old else ''}{f'{{+{new}+}}' if new else ''}{tail[::-1]}".strip()


def _shared(one: str, other: str) -> str:
    """Return the beginning that two texts share, up to a whole word or operator."""
    length = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    following = one[length : length + 1] + other[length : length + 1]
    alike = next((kind for kind in (r"\w", r"[<>=!/*+%|&-]") if re.search(kind, following)), None)
    return one[:length] if alike is None else re.sub(rf"{alike}+$", "", one[:length])


def targets(root: Path) -> list[str]:
    """Return the modules that faults are planted in, relative to `root`."""
    found = {path.relative_to(root).as_posix() for pattern in _MODULES.split() for path in root.glob(pattern)}
    return sorted(found)


def draw(root: Path, modules: Sequence[str], count: int, seed: int) -> list[Fault]:
    """Draw `count` faults, each module's share by its number of sites; all sites where there are no more."""
    sources = {module: (root / module).read_text(encoding="utf-8") for module in modules}
    by_module = {module: sites(module, source, seed) for module, source in sources.items()}
    total = sum(len(found) for found in by_module.values())
    exact = {module: len(found) * min(1.0, count / max(total, 1)) for module, found in by_module.items()}
    shares = {module: int(share) for module, share in exact.items()}
    rest = min(count, total) - sum(shares.values())
    for module in sorted(exact, key=lambda name: shares[name] - exact[name])[:rest]:
        shares[module] += 1
    drawn = []
    for module, found in by_module.items():
        random.Random(f"{seed} {module}").shuffle(found)
        sound = (fault for fault in found if _compiles(fault.apply(sources[module])))
        drawn += sorted(islice(sound, shares[module]), key=lambda fault: (fault.line, fault.column, fault.operator))
    return drawn


def sites(module: str, source: str, seed: int) -> list[Fault]:
    """Return every fault of a module; where an operator has a choice at a site, the seed makes it."""
    found: dict[tuple[int, int, str], Fault] = {}
    for fault in _Finder(module, source, seed).faults():
        if fault.after != fault.before:
            found.setdefault((fault.line, fault.column, fault.operator), fault)
    return list(found.values())


def _compiles(source: str) -> bool:
    try:
        compile(source, "fault", "exec")
    except SyntaxError:
        return False
    return True


_Place = tuple[int, int]
"""A line, and a column in bytes."""
_Change = tuple[_Place, _Place, str, tuple[str, ...]]
"""From where, to where, the operator, and the texts that may come there."""

_OPERATORS: Mapping[str, str] = {
    **{"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="},
    **{"is": "is not", "is not": "is", "in": "not in", "not in": "in", "and": "or", "or": "and"},
    **{"+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "%": "*", "|": "&", "&": "|"},
}
_SWAPS = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum"}
_EMPTY = {"list": "[]", "dict": "{}", "Mapping": "{}", "Sequence": "()", "set": "set()", "frozenset": "frozenset()"}
_UNTOUCHED = (ast.Raise, ast.JoinedStr, ast.Assert, ast.Import, ast.ImportFrom, ast.MatchValue)
_WORDS = frozenset({"__repr__", "__str__", "__format__"})


class _Finder:
    """Walks one module's tree."""

    def __init__(self, module: str, source: str, seed: int) -> None:
        self._module, self._seed, self._lines = module, seed, source.splitlines()
        self._tree = ast.parse(source)

    def faults(self) -> Iterator[Fault]:
        """Yield every fault, also those that change nothing."""
        for statement in self._tree.body:
            names = tuple(
                node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            )
            if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
                names = (statement.name,)
            yield from self._statement(statement, names, top=True)

    def _fault(self, change: _Change, names: tuple[str, ...], *, top: bool) -> Fault:
        (line, begin), (_, end), operator, texts = change
        chosen = random.Random(f"{self._seed} {self._module} {line} {begin} {operator}").choice(texts)
        before = self._lines[line - 1]
        raw = before.encode()  # a column counts bytes
        after = (raw[:begin] + chosen.encode() + raw[end:]).decode()
        return Fault(
            module=self._module, line=line, column=begin, operator=operator, before=before, after=after, names=names, top=top
        )

    def _statement(self, node: ast.AST, names: tuple[str, ...], *, top: bool) -> Iterator[Fault]:
        if isinstance(node, _UNTOUCHED) or _is_text(node) or _for_types_only(node):
            return
        for change in self._here(node, top=top):
            if change[0][0] == change[1][0]:  # in one line
                yield self._fault(change, names, top=top)
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            if getattr(node, "name", "") in _WORDS:
                return
            for default in (*node.args.defaults, *(one for one in node.args.kw_defaults if one is not None)):
                yield from self._statement(default, names, top=top)
            body: list[ast.AST] = [*node.body] if isinstance(node, ast.FunctionDef) else [node.body]
            for inner in body:
                yield from self._statement(inner, names, top=False)
            return
        skipped = {id(getattr(node, field, None)) for field in ("annotation", "returns")}
        if top and isinstance(node, ast.Subscript):  # the arguments of a type
            skipped.add(id(node.slice))
        for child in ast.iter_child_nodes(node):
            decorator = isinstance(node, ast.ClassDef) and child in node.decorator_list
            guard = isinstance(child, ast.keyword) and child.arg == "strict"  # of zip: what is right never needs it
            if id(child) not in skipped and not decorator and not guard:
                yield from self._statement(child, names, top=top)

    def _here(self, node: ast.AST, *, top: bool) -> Iterator[_Change]:
        match node:
            case ast.Compare():
                yield from self._between([node.left, *node.comparators], "comparison")
            case ast.BoolOp():
                yield from self._between(node.values, "and/or")
            case ast.BinOp() if _computes(node, top=top):
                yield from self._between([node.left, node.right], "arithmetic")
            case ast.UnaryOp(op=ast.Not()):
                yield _begin(node), _begin(node.operand), "negation", ("",)
            case ast.Constant(value=bool(value)):
                yield _begin(node), _end(node), "truth", (str(not value),)
            case ast.Constant(value=int() | float() as value):
                more = (f"({value!r} * 10)", f"({value!r} + 1)", "0")
                yield _begin(node), _end(node), "constant", ("1", "10") if value == 0 else more
            case ast.If() | ast.IfExp():
                yield _begin(node.test), _end(node.test), "branch", ("False", "True")
            case ast.While():
                yield _begin(node.test), _end(node.test), "branch", ("False",)
            case ast.comprehension():
                for test in node.ifs:
                    yield _begin(test), _end(test), "branch", ("True",)
            case ast.Expr(value=ast.Call()) | ast.AugAssign():
                yield _begin(node), _end(node), "statement dropped", ("pass",)
            case ast.FunctionDef() if node.returns is not None:
                for inner in ast.walk(node):
                    empty = _empty(node.returns)
                    if isinstance(inner, ast.Return) and inner.value is not None and empty:
                        yield _begin(inner.value), _end(inner.value), "returns nothing", (empty,)
            case ast.Call():
                yield from _in_call(node)
            case ast.Tuple() if top and len(node.elts) > 1:
                for this, following in pairwise(node.elts):
                    yield _begin(this), _begin(following), "element dropped", ("",)

    def _between(self, operands: Sequence[ast.expr], what: str) -> Iterator[_Change]:
        """Yield the operators that stand between operands, each swapped for its opposite."""
        for left, right in pairwise(operands):
            if _end(left)[0] == _begin(right)[0]:
                raw = self._lines[_end(left)[0] - 1].encode()[_end(left)[1] : _begin(right)[1]].decode()
                operator = raw.strip(" ()")
                if operator in _OPERATORS:
                    yield _end(left), _begin(right), what, (raw.replace(operator, _OPERATORS[operator], 1),)


def _in_call(node: ast.Call) -> Iterator[_Change]:
    """Yield a function swapped for its opposite, and keywords left out."""
    function = node.func
    called = function.id if isinstance(function, ast.Name) else function.attr if isinstance(function, ast.Attribute) else ""
    if called in _SWAPS:
        line, column = _end(function)
        yield (line, column - len(called)), (line, column), "swap", (_SWAPS[called],)
    ends = [_end(one) for one in node.args]
    for keyword in node.keywords:
        if keyword.arg not in {None, "strict"} and ends:  # after another argument, whose comma goes too
            yield max(ends), _end(keyword.value), "keyword dropped", ("",)
        ends.append(_end(keyword.value))


def _begin(node: ast.AST) -> _Place:
    return node.lineno, node.col_offset  # type: ignore[attr-defined]


def _end(node: ast.AST) -> _Place:
    return node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]


def _is_words(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _computes(node: ast.BinOp, *, top: bool) -> bool:
    """Return whether it is arithmetic, and neither words joined nor a union of types."""
    union = top and isinstance(node.op, (ast.BitOr, ast.BitAnd))
    return not union and not (_is_words(node.left) or _is_words(node.right))


def _is_text(node: ast.AST) -> bool:
    """Return whether it is a docstring, or another statement that is nothing but text."""
    return isinstance(node, ast.Expr) and _is_words(node.value)


def _for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _empty(annotation: ast.expr) -> str:
    """Return the empty collection of an annotated type; "" where it is none, or one of fixed length."""
    if not isinstance(annotation, ast.Subscript) or not isinstance(annotation.value, ast.Name):
        return ""
    if annotation.value.id == "tuple":
        inner = annotation.slice
        endless = isinstance(inner, ast.Tuple) and isinstance(inner.elts[-1], ast.Constant) and inner.elts[-1].value is ...
        return "()" if endless else ""
    return _EMPTY.get(annotation.value.id, "")
