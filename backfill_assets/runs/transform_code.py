"""The code of a transform: its own text, and that of everything in its project that it uses.

Nothing is run: modules are read. Libraries (what lies elsewhere, or in `site-packages`) have versions of their own, and
what a module does to others when it is imported is not seen.
"""

from __future__ import annotations

import ast
import contextlib
import dis
import functools
import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from backfill_assets.errors import TableSpecError


def code_of_module(name: str, file: Path) -> str:
    """Return the text of a module, and behind it that of the modules of its project that it imports, at any depth."""
    text = file.read_text(encoding="utf-8")
    project = _Project.of(name, file)
    project.follow(name, text, is_package=file.name == "__init__.py")
    return text + project.found(without=name)


def code_of_function(function: Callable[..., Any] | None) -> str:
    """Return the text of a function, and behind it that of what it uses of its project; empty if it has none.

    Raises:
        TableSpecError: It has a value bound to it that cannot be written down, as an argument of `functools.partial`
            for example.
    """
    if function is None:
        return ""
    return _text_of(function, {})


# -- modules -----------------------------------------------------------------------------------------------------------


@dataclass
class _Project:
    """The folder from which a module is imported.

    Args:
        package: Of the module; only its own modules belong to the project where libraries lie beside it.
        texts: What was found, by module.
    """

    root: Path
    package: str
    texts: dict[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def of(cls, name: str, file: Path) -> _Project:
        parts = name.split(".")
        folder = file.resolve().parent.parent if file.name == "__init__.py" else file.resolve().parent
        return cls(folder.parents[len(parts) - 2] if len(parts) > 1 else folder, parts[0])

    def file_of(self, name: str) -> Path | None:
        """Return the file of a module of the project."""
        package = name.partition(".")[0]
        if package != self.package and {"site-packages", "dist-packages"} & set(self.root.parts):
            return None
        if package == "backfill_assets" and not name.startswith("backfill_assets.defs."):
            return None  # this package, with a version of its own
        path = self.root.joinpath(*name.split("."))
        return next((f for f in (path.with_suffix(".py"), path / "__init__.py") if f.is_file()), None)

    def follow(self, name: str, text: str, *, is_package: bool) -> None:
        """Find the modules that a text of a module imports."""
        try:
            tree = ast.parse(textwrap.dedent(text))
        except SyntaxError:  # a part of a line, as of a lambda; or a module that fails when it is imported
            return
        for node in ast.walk(tree):
            for names in _imported(node, name, is_package=is_package).values():
                self.add(*names)

    def add(self, *names: str) -> None:
        """Take the first of some names that is a module, and what it imports."""
        for name in names:
            if file := self.file_of(name):
                if name not in self.texts:
                    self.texts[name] = file.read_text(encoding="utf-8")
                    self.follow(name, self.texts[name], is_package=file.name == "__init__.py")
                return

    def found(self, *, without: str) -> str:
        return "".join(f"\n# {name}\n{text}" for name, text in sorted(self.texts.items()) if name != without)


def _imported(node: ast.AST, module: str, *, is_package: bool) -> dict[str, tuple[str, ...]]:
    """Return for each name that a statement imports what its module may be called."""
    if isinstance(node, ast.Import):
        return {alias.asname or alias.name: (alias.name,) for alias in node.names}
    if not isinstance(node, ast.ImportFrom):
        return {}
    parts = module.split(".")
    above = parts[: len(parts) - node.level + is_package] if node.level else []
    base = ".".join([*above, *([node.module] if node.module else [])])
    return {alias.asname or alias.name: (f"{base}.{alias.name}", base) for alias in node.names}


# -- functions ---------------------------------------------------------------------------------------------------------


def _text_of(function: Any, seen: dict[int, object]) -> str:
    """Return the text of anything that can be called."""
    if id(function) in seen:
        return ""
    seen[id(function)] = function
    if isinstance(function, functools.partial):
        bound = _value((function.args, function.keywords), seen)
        return f"{_text_of(function.func, seen)}\n# bound\n{bound}"
    if inspect.ismethod(function):
        return f"{_text_of(function.__func__, seen)}\n# bound\n{_value(function.__self__, seen)}"
    try:
        text = inspect.getsource(function)
    except OSError:  # typed into a prompt
        return ""
    except TypeError:
        made = inspect.getattr_static(type(function), "__call__", None)
        if not inspect.isfunction(made):
            return ""
        others = [getattr(made, "__func__", made) for made in vars(type(function)).values()]
        texts = [_text_of(one, seen) for one in (made, *filter(inspect.isfunction, others))]
        return f"{''.join(texts)}\n# bound\n{_value(vars(function), seen)}"
    return text + _used_by(function, text, seen) if inspect.isfunction(function) else text


def _used_by(function: FunctionType, text: str, seen: dict[int, object]) -> str:
    """Return the text of what a function uses: what it closes over, and the names of its module and of others."""
    file = inspect.getsourcefile(function)
    if file is None:
        return ""
    name = function.__module__ if function.__module__ != "__main__" else Path(file).stem
    project, more = _Project.of(name, Path(file)), list[str]()
    is_package = Path(file).name == "__init__.py"
    project.follow(name, text, is_package=is_package)
    for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # not bound yet, as the name of a function in its own body
            more.append(f"\n# {variable}\n{_value(cell.cell_contents, seen)}")
    whole = Path(file).read_text(encoding="utf-8")
    statements = _bindings(whole)
    waiting, done = sorted(_globals(function.__code__) | _before_the_body(statements, function)), set[str]()
    while waiting:
        variable = waiting.pop(0)
        if variable in done:
            continue
        done.add(variable)
        value = function.__globals__.get(variable)
        if inspect.isfunction(value) and value.__module__ == function.__module__:
            more.append(_text_of(inspect.unwrap(value), seen))
        elif variable in statements:
            node = statements[variable]
            imported = _imported(node, name, is_package=is_package)
            for bound, names in imported.items():
                if variable in (bound, bound.partition(".")[0]):
                    project.add(*names)
            more += [] if imported else [f"\n{ast.get_source_segment(whole, node) or ''}"]
            waiting += [] if imported else sorted(_read(node))
    return "".join(more) + project.found(without=name)


def _before_the_body(statements: Mapping[str, ast.AST], function: FunctionType) -> set[str]:
    """Return the names that a function's decorators and its arguments' defaults are made of."""
    node = statements.get(function.__name__)
    if not isinstance(node, ast.FunctionDef):
        return set()
    arguments = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
    return set[str]().union(*map(_read, [*node.decorator_list, *arguments]))


def _read(node: ast.AST) -> set[str]:
    """Return the names that a statement, or a part of one, reads."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def _globals(code: CodeType) -> set[str]:
    """Return the names that code, and code within it, looks up outside of itself."""
    found = {i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return found.union(*(_globals(inner) for inner in code.co_consts if isinstance(inner, CodeType)))


def _bindings(text: str) -> Mapping[str, ast.AST]:
    """Return the statements of a module by the names that they give something to."""
    return {name: node for node in ast.parse(text).body for name in _bound(node)}


def _bound(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    return [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]


def _value(value: Any, seen: dict[int, object]) -> str:
    """Return a value that is bound to a function as text that is the same in every process."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(item, seen) for item in value)}]"
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(_value(item, seen) for item in value))}}}"
    if isinstance(value, dict):
        pairs = (f"{_value(key, seen)}: {_value(item, seen)}" for key, item in value.items())
        return f"{{{', '.join(sorted(pairs))}}}"
    if inspect.ismodule(value):
        return value.__name__
    if callable(value):
        return _text_of(value, seen)
    text = repr(value)
    if " at 0x" in text or type(value).__repr__ is object.__repr__:
        raise TableSpecError(
            f"A transform has a `{type(value).__module__}.{type(value).__qualname__}` bound to it, and what that is "
            "cannot be written down, so that a change of it would not be seen.",
            state="Nothing was loaded.",
            remedy="Bind numbers, texts, dates, lists and functions only, and make the rest inside the transform.",
        )
    return text
