"""Every error this project raises.

BackfillAssetsError
├── ConfigurationError                 found when the definitions load, or when a command starts
│   ├── TableSpecError                 a table's specification is wrong
│   ├── AddressMissingError            the variable that is to hold a database's address is not set
│   └── SparkUnavailableError              Java, jars or Spark are missing or broken
├── LaunchError                        the request cannot be served; nothing was written
│   ├── WindowError                    a time, zone or range that does not exist on the table's grid
│   │   └── NaiveInstantError          an instant without a zone: refused, never relabelled
│   ├── LivePartitionsError            the partitions belong to the live stream
│   ├── SourceIncompleteError          the source is not complete for any partition of the launch
│   ├── SourceMissingError             the source's root is not there, or cannot be listed
│   ├── SourceRepeatedError            a file of the source is below its root twice
│   ├── SourceRefusedError             a source's database does not let it be read
│   ├── SchemaMismatchError            source or table does not have the columns that the spec names
│   ├── TableFactsError                the table is another one than its spec describes
│   ├── PlanDriftError                 what a plan was made of is not so any more
│   ├── UndoError                      a launch cannot be taken back
│   ├── VersionError                   a version of a table cannot be compared, or cannot become current
│   ├── ReasonMissingError             a table requires a reason for each launch, and none was given
│   ├── TableFolderError               a source's folder is a table, whose log says which files count
│   └── SameTableError                 a source lies where the lakehouse's tables do
├── PublishError                       a publish was not made; the table is as it was
│   ├── StrayRowsError                 the source gave rows of partitions that were not asked for
│   ├── ChunkDependenceError           rows of a partition are others when it is made by itself
│   ├── UnsafeWriteError               the session or the frame could have replaced more than was asked
│   ├── TableRuleError                 a rule that the table has of its own refused what was to be written
│   ├── UnreadableSourceError          a file, or a row of a database, could not be read (a retry helps)
│   ├── UnreadableTableError           files of the table are gone or damaged (a retry helps)
│   ├── EngineFailedError              Spark, Delta or a storage failed, and it may pass (a retry helps)
│   ├── EngineRefusedError             Spark refused what code, a spec or a setting asks for
│   ├── ExpressionError                what is computed of rows cannot be computed of one of them
│   ├── SourceChangedError             files changed between the read and the save (a retry helps)
│   ├── SourceUnavailableError         a source's database did not answer, or ended the read (a retry helps)
│   ├── StagedContentLostError         the staged frame changed under the write; the old content was put back
│   ├── PutBackError                   a commit replaced what it should not have, and that could not be put back
│   ├── CommitConflictError            another writer changed the same partitions (a retry helps)
│   ├── TableLockedError               another writer on this machine holds the table's lock (a retry helps)
│   ├── StorageError                   a disk or another storage is full, read-only or somebody else's
│   ├── MemoryExhaustedError           Spark ran out of memory (a smaller chunk helps)
│   └── UncertainCommitError           nobody could say whether a commit was made, or is whole (a retry helps)
│       └── SparkGoneError             Spark's JVM has ended; what it was saving is whole or absent (a retry helps)
├── LiveError                          the live side cannot go on; no event is lost
│   ├── FenceError                     a fence cannot stand where it is asked to, or cannot be read
│   ├── FenceMoveInterruptedError      whoever moved the fence did not end it
│   ├── FirstBatchLateError            almost all rows of a new stream's first batch are late
│   ├── StreamMismatchError            the table belongs to another stream, or to none
│   └── ChangeFeedError                a database's change feed has a hole, or cannot be continued
│       ├── FeedBehindError            a feed has not come as far as is needed (a retry helps)
│       ├── FoldOvertakenError         a partition was put back while changes were folded into it (a retry helps)
│       └── CaptureRunningError        another process takes the changes of this capture
├── HistoryUnavailableError            Dagster's own database did not answer (a retry helps)
├── ReconciliationUnavailableError     one side could not be counted; a mismatch is a failed check, never an error
└── ReceiptError                       a commit's receipt cannot be read

Each message has three sentences: what failed, with names and values; the state that the data is in; what to do.
"""

from __future__ import annotations

from typing import ClassVar


class BackfillAssetsError(Exception):
    """The root. `retry_helps` says whether the same call can succeed later without a change by a person.

    Args:
        what: What failed, with names and values.
        state: The state that the data is in.
        remedy: What to do now.
        facts: The values behind the message, for programs: names as keywords.
    """

    retry_helps: ClassVar[bool] = False

    def __init__(self, what: str, *, state: str, remedy: str, **facts: object) -> None:
        self.what = written_out(what, but="\n")
        self.state = state
        self.remedy = remedy
        self.facts = facts
        super().__init__(f"{self.what} {state} {remedy}")

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.what, self.state, self.remedy, self.facts)

    def with_state(self, state: str) -> BackfillAssetsError:
        """Return the same error with another state, for a caller that knows more than the place that raised it."""
        return _rebuild(type(self), self.what, state, self.remedy, self.facts)


def written_out(text: str, *, but: str = "") -> str:
    r"""Return a text for a message: characters that a terminal obeys or hides are written out, ESC as `\x1b`.

    Args:
        but: Characters that stay as they are.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in but else one.encode("unicode_escape").decode() for one in text)


def _rebuild(
    kind: type[BackfillAssetsError], what: str, state: str, remedy: str, facts: dict[str, object]
) -> BackfillAssetsError:
    """Make an error again on the other side of a process boundary."""
    return kind(what, state=state, remedy=remedy, **facts)


NOTHING_WRITTEN = "Nothing was written."
NOTHING_COMPARED = "Nothing was compared, and nothing was changed."
LANDED_STAYS = "What has landed stays, and the server keeps what has not: nothing is lost."
TRIED_AGAIN = "The launch reads everything again and tries once more; launch again if it gave up."
STORAGE_REMEDY = "Make room there, or give this user the right to write, and launch again with `only: MISSING`."


class ConfigurationError(BackfillAssetsError):
    """Found when the definitions load, or when a command starts."""


class TableSpecError(ConfigurationError):
    """A table's specification is wrong."""


class AddressMissingError(ConfigurationError):
    """The environment variable that is to hold the address of a database is not set."""


class SparkUnavailableError(ConfigurationError):
    """Java, jars or Spark are missing or broken."""


class LaunchError(BackfillAssetsError):
    """The request cannot be served; nothing was written."""


class WindowError(LaunchError, ValueError):
    """A time, zone or range that does not exist on the table's grid."""


class NaiveInstantError(WindowError):
    """An instant without a zone: refused, never relabelled."""


class LivePartitionsError(LaunchError):
    """The partitions belong to the live stream."""


class SourceIncompleteError(LaunchError):
    """The source is not complete for any partition of the launch."""


class SourceMissingError(LaunchError):
    """The source's root is not there, or cannot be listed."""


class SourceRepeatedError(LaunchError):
    """A file of the source is below its root twice."""


class SourceRefusedError(LaunchError):
    """A source's database does not let it be read: the user, the password, a right, a name in it."""


class SchemaMismatchError(LaunchError):
    """Source or table does not have the columns that the spec names."""


class PlanDriftError(LaunchError):
    """What a plan was made of is not so any more."""


class UndoError(LaunchError):
    """A launch cannot be taken back: it is unknown, or still runs, or what it replaced cannot be read any more."""


class VersionError(LaunchError):
    """A version of a table cannot be compared, or cannot become the current one."""


class ReasonMissingError(LaunchError):
    """A table requires a reason for each launch, and none of a known kind was given."""


class TableFactsError(LaunchError):
    """The table is another one than its spec describes: of another grain, zone, event time or key, or with a stream."""


class TableFolderError(LaunchError):
    """A source's folder is a table: its log, not the folder, says which files hold rows."""


class SameTableError(LaunchError):
    """A source lies where the lakehouse's tables do: a table would be made from itself, or from another one's files."""


class PublishError(BackfillAssetsError):
    """A publish was not made; the table is as it was."""


class StrayRowsError(PublishError):
    """The source gave rows of partitions that were not asked for."""


class ChunkDependenceError(PublishError):
    """Rows of a partition are others when it is made by itself."""


class UnsafeWriteError(PublishError):
    """The session or the frame could have replaced more than was asked."""


class TableRuleError(PublishError):
    """A rule that the table has of its own refused what was to be written."""


class UnreadableSourceError(PublishError):
    """A file of the source, or a row of its database, could not be read."""

    retry_helps = True


class UnreadableTableError(PublishError):
    """Files of the table are gone or damaged, so some of its partitions cannot be read."""

    retry_helps = True


class EngineFailedError(PublishError):
    """Spark, Delta or a storage failed, and nobody knows that the reason lasts."""

    retry_helps = True


class EngineRefusedError(PublishError):
    """Spark refused what was asked of it: by a transform, a spec, a setting, or for the values of a row."""


class ExpressionError(PublishError):
    """What is computed of rows, by `computed` or by a transform, cannot be computed of one of them."""


class SourceChangedError(PublishError):
    """Files changed between the read and the save."""

    retry_helps = True


class SourceUnavailableError(PublishError):
    """A source's database did not answer, or ended the read."""

    retry_helps = True


class StagedContentLostError(PublishError):
    """The staged frame changed under the write; the old content was put back."""


class PutBackError(PublishError):
    """A commit replaced what it should not have, and that could not be put back."""


class CommitConflictError(PublishError):
    """Another writer changed the same partitions."""

    retry_helps = True


class TableLockedError(PublishError):
    """Another writer on this machine holds the table's lock."""

    retry_helps = True


class StorageError(PublishError):
    """A disk or another storage is full, read-only or somebody else's."""


class MemoryExhaustedError(PublishError):
    """Spark ran out of memory."""


class UncertainCommitError(PublishError):
    """Nobody could say whether a commit was made, or whether it holds what was audited; another launch finds out."""

    retry_helps = True


class SparkGoneError(UncertainCommitError):
    """Spark's JVM has ended."""


class LiveError(BackfillAssetsError):
    """The live side cannot go on; no event is lost."""


class FenceError(LiveError):
    """A fence cannot stand where it is asked to, or cannot be read."""


class FenceMoveInterruptedError(LiveError):
    """Whoever moved the fence did not end it."""


class FirstBatchLateError(LiveError):
    """Almost all rows of a new stream's first batch lie before the fence."""


class StreamMismatchError(LiveError):
    """The table belongs to another stream, or to none."""


class ChangeFeedError(LiveError):
    """A database's change feed has a hole, or cannot be continued."""


class FeedBehindError(ChangeFeedError):
    """A database's change feed has not come as far as is needed."""

    retry_helps = True


class FoldOvertakenError(ChangeFeedError):
    """A partition was put back, or written by somebody else, while changes were folded into it."""

    retry_helps = True


class CaptureRunningError(ChangeFeedError):
    """A capture of the same name takes the changes, from another process or machine."""


class HistoryUnavailableError(BackfillAssetsError):
    """Dagster's own database did not answer, or took nothing."""

    retry_helps = True


class ReconciliationUnavailableError(BackfillAssetsError):
    """One side could not be counted."""


class ReceiptError(BackfillAssetsError):
    """A commit's receipt cannot be read."""
