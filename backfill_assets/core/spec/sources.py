"""The kinds of source that there are: the one place where a kind is matched with what knows it.

A kind is a class below `SourceSpec`, which pydantic validates, and a function that builds the source which reads it.
The built-in kinds are registered here, in the same way as a kind of a user's own: see `docs/sources.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Annotated, Any, Union, cast

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter
from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError, core_schema

from backfill_assets.core.spec.databases import DatabaseSpec
from backfill_assets.core.spec.fields import in_words
from backfill_assets.core.spec.files import FilesSpec
from backfill_assets.core.spec.source_spec import SourceSpec
from backfill_assets.core.spec.tables import TablesSpec
from backfill_assets.core.spec.version_source import VersionSpec
from backfill_assets.errors import ConfigurationError

ENTRY_POINTS = "backfill_assets.sources"
"""Group of entry points, each named after a kind, that name the module in which `register_source` is called."""

Build = Callable[[Any, Any], Any]
"""Takes a kind's spec and a `SourceContext`, returns a `Source`."""


@dataclass(frozen=True, slots=True)
class SourceKind:
    """One kind of source.

    Args:
        spec_class: What `source:` says with this kind.
        build: A function, or where one is: `package.module:function`, imported when a launch needs it.
    """

    spec_class: type[SourceSpec]
    build: Build | str

    def builder(self) -> Build:
        """Return the function that builds the source; only now its module is imported."""
        if not isinstance(self.build, str):
            return self.build
        module, _, function = self.build.partition(":")
        return cast("Build", getattr(import_module(module), function))


_KINDS: dict[str, SourceKind] = {}


def register_source(spec_class: type[SourceSpec], build: Build | str) -> None:
    """Make a kind of source known, so that a table's `source:` may say it.

    Args:
        spec_class: A class below `SourceSpec` with `kind: Literal["..."] = "..."`.
        build: Takes the spec and a `SourceContext`, returns a `Source`. As text, `package.module:function`, its module
            is imported when a launch needs it: definitions then load without what only reading needs, such as Spark.

    Raises:
        ConfigurationError: The class names no kind, or another class has that kind already.
    """
    kind = spec_class.kind_name()
    if kind is None:
        raise ConfigurationError(
            f"`{spec_class.__name__}` does not say which kind of source it is.",
            state="It was not registered.",
            remedy='Give it a field such as `kind: Literal["rows"] = "rows"`.',
        )
    taken = _KINDS.get(kind)
    if taken is not None and _name_of(taken.spec_class) != _name_of(spec_class):  # a module may be loaded twice
        raise ConfigurationError(
            f"The kind of source `{kind}` is `{_name_of(taken.spec_class)}` already, and `{_name_of(spec_class)}` "
            "wants its name.",
            state="The first one stays.",
            remedy="Give one of them another name.",
        )
    _KINDS[kind] = SourceKind(spec_class, build)


def source_kinds() -> Mapping[str, SourceKind]:
    """Return every kind that there is, by name; those of installed packages are loaded for it."""
    for entry_point in entry_points(group=ENTRY_POINTS):
        _load_kind(entry_point.name)
    return dict(_KINDS)


def kind_of(source: SourceSpec) -> SourceKind:
    """Return the kind that a spec is of.

    Raises:
        ConfigurationError: Its class was not registered.
    """
    found = _KINDS.get(source.kind_name() or "")
    if found is None or _name_of(found.spec_class) != _name_of(type(source)):
        raise ConfigurationError(
            f"`{_name_of(type(source))}` is no registered kind of source.",
            state="Nothing was read.",
            remedy="Call `backfill_assets.register_source` with it where it is defined.",
        )
    return found


def _load_kind(kind: str) -> SourceKind | None:
    """Return a kind; one that is not known yet may be that of an installed package."""
    if kind in _KINDS:
        return _KINDS[kind]
    for entry_point in entry_points(group=ENTRY_POINTS, name=kind):
        try:
            entry_point.load()
        except (ImportError, AttributeError) as error:
            raise ConfigurationError(
                f"The kind of source `{kind}` cannot be loaded from `{entry_point.value}`: {error}.",
                state="Nothing was loaded.",
                remedy=f"Correct that module, or the entry point of the group `{ENTRY_POINTS}` that names it.",
            ) from error
    return _KINDS.get(kind)


def _name_of(spec_class: type[SourceSpec]) -> str:
    return f"{spec_class.__module__}.{spec_class.__qualname__}"


class _OfRegisteredKind:
    """Tells pydantic to ask the registry which class a `source:` is of, when it is validated or shown."""

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        as_its_own_class = core_schema.wrap_serializer_function_ser_schema(
            lambda value, serialize: serialize(value), schema=core_schema.any_schema()
        )
        return core_schema.no_info_plain_validator_function(_validated, serialization=as_its_own_class)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, _schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        union = cast("Any", Union)[tuple(kind.spec_class for kind in source_kinds().values())]
        either = cast("Any", Annotated)[union, Field(discriminator="kind")]  # a type that only run time knows
        return handler(TypeAdapter[Any](either).core_schema)


def _validated(value: Any) -> SourceSpec:
    if isinstance(value, SourceSpec):
        return value
    if not isinstance(value, Mapping):
        raise PydanticCustomError("mapping_type", "a source is a mapping that says its `kind`")
    facts = cast("Mapping[str, Any]", value)
    if "kind" not in facts:
        raise _wrong_kind("missing", facts)
    kind = _load_kind(facts["kind"]) if isinstance(facts["kind"], str) else None
    if kind is None:
        known = in_words(list(source_kinds()))
        message = f"there is no kind of source `{facts['kind']}`; there are {known}"
        raise _wrong_kind(PydanticCustomError("value_error", "{what}", {"what": message}), facts["kind"])
    return kind.spec_class.model_validate(facts)


def _wrong_kind(error: str | PydanticCustomError, value: Any) -> ValidationError:
    """Return an error that names the field `kind`."""
    return ValidationError.from_exception_data("source", [InitErrorDetails(type=error, loc=("kind",), input=value)])


AnySource = Annotated[SourceSpec, _OfRegisteredKind]
"""A `source:` of any kind that is registered when it is validated."""

register_source(FilesSpec, "backfill_assets.sources.files.source:build")
register_source(DatabaseSpec, "backfill_assets.sources.database.source:build")
register_source(TablesSpec, "backfill_assets.sources.tables:build")
register_source(VersionSpec, "backfill_assets.sources.version:build")
