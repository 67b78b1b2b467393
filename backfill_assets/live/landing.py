"""Events as they land: files of JSON lines, read as a stream, and each batch split at the fence."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill_assets.core.calendar.windows import midnight_utc
from backfill_assets.core.live.ports import Split
from backfill_assets.core.spec.history import history_of
from backfill_assets.core.spec.live import LiveStream
from backfill_assets.core.spec.table import TableSpec
from backfill_assets.core.sql import instant_literal
from backfill_assets.sources.files.json_lines import typed_lines
from backfill_assets.sources.files.observed import columns_of_lines, lines_of
from backfill_assets.spark.expressions import collected, column, partition_value
from backfill_assets.spark.storage import is_there, literal_path

_FOR_EVER = "36500000d"
"""By default Spark never reads a file that is a week older than the newest one, without a word.

It may be any file of the past beside one that a wrong clock has put into another century.
"""

_FIELDS_NAMED = 20
_FILES_LOOKED_AT = 9
_LINE, _FILE, _LANDED = "_ba_text", "_ba_file", "_ba_landed_at"


def landing_stream(spark: SparkSession, live: LiveStream, folder: str) -> DataFrame:
    """Return the lines of files as they land, as a stream.

    Files whose names start with `.` or `_` are not looked at. A file may be as old as it likes when it lands: `cp -p`
    and `rsync -t` keep its time. Spark remembers every file that it has seen for that.
    """
    reader = spark.readStream.format("text").option("maxFilesPerTrigger", str(live.max_files_per_trigger))
    reader = reader.option("maxFileAge", _FOR_EVER)
    return _named(reader.option("recursiveFileLookup", "true").load(literal_path(folder)))


def landed_lines(spark: SparkSession, folder: str, *, modified_after: datetime) -> DataFrame:
    """Return the lines of the files that have landed after an instant."""
    reader = spark.read.format("text").option("recursiveFileLookup", "true").option("timeZone", "UTC")
    return _named(reader.option("modifiedAfter", f"{modified_after:%Y-%m-%dT%H:%M:%S}").load(literal_path(folder)))


def _named(lines: DataFrame) -> DataFrame:
    landed = F.col("_metadata.file_modification_time").alias(_LANDED)
    return lines.select(F.col("value").alias(_LINE), F.col("_metadata.file_path").alias(_FILE), landed)


def fields_of_newest(spark: SparkSession, spec: TableSpec, live: LiveStream, folder: str) -> dict[str, str]:
    """Return the fields of the newest events with their types; none while nothing has landed.

    A few files are looked at, and the first thousand lines of each.
    """
    if not is_there(spark, folder):
        return {}
    files = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(literal_path(folder))
    newest = files.where("length > 0").orderBy(F.desc("modificationTime"), F.desc("path")).select("path")
    paths = [row["path"] for row in newest.limit(_FILES_LOOKED_AT).collect()]
    rows = [row for path in paths for row in lines_of(spark, path)]
    return columns_of_lines(rows, spec)


def events_of(spec: TableSpec, live: LiveStream, lines: DataFrame) -> DataFrame:
    """Return lines as events: the spec's columns, the partition column, and `_ba_problem`: why a line is no event."""
    events = typed_lines(spec, lines, live.timestamps_without_zone)
    begin, first = min(history_of(spec).start_utc, midnight_utc(live.starts, spec.grid.zone)), spec.grid.start_utc
    what = "the table's start" if begin == first else "the beginning of its history, `source.begin`"
    when = column(spec.event_time)
    problem = F.coalesce(
        F.col("_ba_problem"),
        *(F.when(column(name).isNull(), F.lit(f"`{name}` is NULL")) for name in spec.required_columns),
        F.when(
            when < instant(begin), F.concat(F.lit(f"`{spec.event_time}` lies before {what}: "), when.cast("string"))
        ),
    )
    return events.withColumn("_ba_problem", problem).withColumn(spec.partition_column, partition_value(spec, when))


@dataclass(slots=True)
class EventBatch:
    """One batch of a stream, read once and kept until it is released.

    Args:
        number: As the stream counts them; a replay has the same number and the same files.
        lines: The rows of a landing stream.
    """

    spec: TableSpec
    live: LiveStream
    number: int
    lines: DataFrame
    _events: DataFrame | None = None
    _counts: tuple[datetime, datetime, tuple[int, int, int]] | None = None
    _landed: tuple[str, str] | None = None
    _digest: str = ""
    _with_more: int = 0

    @property
    def landed_utc(self) -> tuple[str, str] | None:
        """When the oldest and the newest file of it landed; known after a split."""
        return self._landed

    @property
    def digest(self) -> str:
        """Of its lines, whatever their order; known after a split."""
        return self._digest

    def split(self, fence: datetime, until: datetime) -> Split[DataFrame]:
        """Split the rows at the fence; quarantine those from `until` on, and late ones that no launch could fold."""
        events = self._kept()
        when, at, latest = column(self.spec.event_time), instant(fence), instant(until)
        future = F.concat(F.lit(f"`{self.spec.event_time}` lies in the future: "), when.cast("string"))
        sealed = f"`{self.spec.event_time}` lies in a sealed partition, before the beginning of its history: "
        never = (when < at) & (when < instant(history_of(self.spec).start_utc))
        reason = F.coalesce(
            F.col("_ba_problem"),
            F.when(when >= latest, future),
            F.when(never, F.concat(F.lit(sealed), when.cast("string"))),
        )
        is_live, is_late = reason.isNull() & (when >= at), reason.isNull() & (when < at)
        if self._counts is None or self._counts[:2] != (fence, until):
            (counted,) = events.agg(
                F.count_if(is_live).alias("live"),
                F.count_if(is_late).alias("late"),
                F.count_if(reason.isNotNull()).alias("quarantined"),
                F.count_if(F.size(self._unread()) > 0).alias("with_more"),
                F.sum(F.xxhash64(_LINE).cast("decimal(38,0)")).cast("string").alias("digest"),
                F.date_format(F.min(_LANDED), "yyyy-MM-dd'T'HH:mm:ss.SSSXXX").alias("oldest"),
                F.date_format(F.max(_LANDED), "yyyy-MM-dd'T'HH:mm:ss.SSSXXX").alias("newest"),
            ).collect()
            self._counts = (fence, until, (counted["live"], counted["late"], counted["quarantined"]))
            self._with_more, self._digest = counted["with_more"], counted["digest"] or ""
            self._landed = (counted["oldest"], counted["newest"]) if counted["oldest"] else None
        names = [column(name) for name in [*self.spec.columns, self.spec.partition_column]]
        return Split(
            live=events.where(is_live).select(*names),
            late=events.where(is_late).select(*names),
            quarantined=events.where(reason.isNotNull()).select(
                F.col(_LINE).alias("line"), reason.alias("reason"), F.col(_FILE).alias("file")
            ),
            counts=self._counts[2],
        )

    def unread_fields(self) -> dict[str, int]:
        """Return the fields of the lines that no column is read from, and in how many lines they are; after a split."""
        if not self._with_more:
            return {}
        found = self._kept().select(F.explode(self._unread()).alias("field")).groupBy("field").count()
        most = collected(found.orderBy(F.desc("count"), "field").limit(_FIELDS_NAMED))
        return {row["field"]: int(row["count"]) for row in most}

    def _unread(self) -> Column:
        read = {self.spec.field_of(name).split(".")[0] if c.path else name for name, c in self.spec.columns.items()}
        return F.array_except(F.json_object_keys(_LINE), F.array(*map(F.lit, sorted(read))))

    def release(self) -> None:
        """Release the rows."""
        if self._events is not None:
            self._events.unpersist()

    def _kept(self) -> DataFrame:
        if self._events is None:
            self._events = events_of(self.spec, self.live, self.lines).persist()
        return self._events


def instant(value: datetime) -> Column:
    """Return an instant in UTC as a typed literal."""
    return F.expr(instant_literal(value))
