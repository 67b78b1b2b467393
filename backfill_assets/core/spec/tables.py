"""`kind: delta`: history in other tables of the same lakehouse, as a spec says it."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field

from backfill_assets.core.spec.source_spec import Input, SourceSpec, TableFacts


class TablesSpec(SourceSpec):
    """History in other tables of this lakehouse, read at pinned versions.

    With one table and no transform it is a copy of that table's columns.
    """

    kind: Literal["delta"] = Field(default="delta", description="Other tables of this lakehouse.")
    tables: list[Input] = Field(min_length=1, description="The tables, in the order in which the transform takes them.")
    transform: str | None = Field(
        default=None,
        description="Dotted path of a function that takes one DataFrame for each table, in order, and returns the "
        "rows. "
        "A path that starts with a dot is relative to the folder of the YAML file.",
    )

    transform_by: Literal["partition", "chunk"] | None = Field(
        default=None,
        description="What one call of the transform gets: what each `partition` is made of, by itself, or all that a "
        "`chunk` of many partitions is made of, which is faster. Without it `partition` if there are offsets, else "
        "`chunk`.",
    )

    code: list[str] = Field(
        default=[],
        description="Modules of the project that the transform uses, for example `shop.money`. Their text and that of "
        "the transform's module make the code version: if it changes, published partitions are stale. A change in a "
        "module that is not listed makes nothing stale.",
    )
    code_version: str | None = Field(
        default=None,
        description="A version of the transform that you set by hand. It replaces the text of its modules.",
    )

    @property
    def description(self) -> str:
        """The tables by key."""
        return ", ".join(f"`{source.table}`" for source in self.tables)

    @property
    def inputs(self) -> list[Input]:
        """The tables, in the order in which the transform takes them."""
        return self.tables

    @property
    def transform_path(self) -> str | None:
        """The dotted path, as it is written."""
        return self.transform

    @property
    def modules_of_code(self) -> list[str]:
        """The modules beside the transform's own whose text is part of the code version."""
        return self.code

    @property
    def sets_code_version(self) -> bool:
        """Whether the spec says the version of the transform."""
        return self.code_version is not None

    @property
    def is_called_for_each(self) -> bool:
        """Whether the transform is called for each partition by itself."""
        looks_around = any(source.start_offset or source.end_offset for source in self.tables)
        return self.transform_by == "partition" or (self.transform_by is None and looks_around)

    def for_rows(self) -> Self:
        """Say how the transform is called, but not who decided it; one call for a chunk is as if nothing was said."""
        called = "partition" if self.is_called_for_each else None
        return self.model_copy(update={"transform_by": called, "code": []})

    @property
    def partitions_at_once(self) -> int | None:
        """A month of days, where there is a part of Spark's plan for each."""
        return 31 if self.is_called_for_each else None

    def problems(self, table: TableFacts) -> list[str]:
        """Refuse a table that is made from itself, and several tables without a transform."""
        found: list[str] = []
        if any(source.table == table.key for source in self.tables):
            found.append(f"source: `{table.key}` cannot be made from itself")
        if len(self.tables) > 1 and self.transform is None:
            found.append("source: with more than one table a `transform` must say how they become one")
        return found
