"""What PostgreSQL is asked besides rows: of its catalog, of a moment, of its log. Texts without a value in them.

Values go as parameters, beside the text; names that have to stand in it are quoted by `sql.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from backfill_assets.core.postgres.sql import table_name, text_literal
from backfill_assets.core.postgres_names import identifier
from backfill_assets.core.spec.databases import DatabaseSpec

LOCK_TIMEOUT_MS = 10_000
"""Of readers that import a snapshot. Behind an `ALTER TABLE` that waits for the snapshot's own session, all three
would wait for ever, and everybody else who uses the table with them."""

NOW = "SELECT now()"
VERSION_AND_STANDBY = "SELECT current_setting('server_version_num')::int, pg_is_in_recovery()"
BEGIN_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


def keep_table(source: DatabaseSpec) -> str:
    """Return what keeps a table from being written anew until the transaction ends; it takes no snapshot.

    A statement that writes a whole table anew (`ALTER TABLE`, `TRUNCATE`) leaves it empty to every snapshot that is
    older than its end. So a snapshot is taken when nobody can do that any more, and not before.
    """
    return f"LOCK TABLE {table_name(source)} IN ACCESS SHARE MODE"


HOLDERS = """
WITH RECURSIVE waiting(pid) AS (
  SELECT %(pid)s::int UNION SELECT b FROM waiting w, unnest(pg_blocking_pids(w.pid)) b WHERE b <> 0
)
SELECT a.pid, a.application_name, a.xact_start, NULL FROM waiting JOIN pg_stat_activity a USING (pid)
WHERE a.pid <> %(pid)s
UNION ALL
SELECT NULL, p.gid, p.prepared, p.database FROM pg_prepared_xacts p WHERE EXISTS (
  SELECT FROM pg_locks held
  JOIN pg_locks wanted ON (
    wanted.locktype, wanted.database, wanted.relation, wanted.page, wanted.tuple, wanted.virtualxid,
    wanted.transactionid, wanted.classid, wanted.objid, wanted.objsubid) IS NOT DISTINCT FROM (
    held.locktype, held.database, held.relation, held.page, held.tuple, held.virtualxid,
    held.transactionid, held.classid, held.objid, held.objsubid)
  JOIN waiting w ON w.pid = wanted.pid AND NOT wanted.granted AND 0 = ANY(pg_blocking_pids(w.pid))
  JOIN pg_locks own ON own.pid IS NULL AND own.virtualtransaction = held.virtualtransaction
  WHERE held.granted AND held.pid IS NULL AND own.locktype = 'transactionid' AND own.transactionid = p.transaction)
ORDER BY 3
"""
"""Who holds what a session waits for, and who holds what those wait for, the oldest first: a session's number, its
application, and when its transaction began; of a prepared transaction its name, when that was, and its database."""


# -- the catalog -------------------------------------------------------------------------------------------------------

_BASES = """
WITH RECURSIVE down(declared, oid, below, modifier) AS (
  SELECT oid, oid, typbasetype, typtypmod FROM pg_type
  UNION ALL
  SELECT d.declared, t.oid, t.typbasetype, CASE t.typbasetype WHEN 0 THEN d.modifier ELSE t.typtypmod END
  FROM down d JOIN pg_type t ON t.oid = d.below
), base AS (
  SELECT d.declared, d.modifier, t.oid, t.typname, t.typcategory
  FROM down d JOIN pg_type t USING (oid) WHERE d.below = 0
)"""
"""The base of each type: of a domain what lies below it and below all domains in between, of other types themselves."""

COLUMNS = f"""{_BASES}
SELECT a.attname, b.typname,
       format_type(b.oid, CASE b.oid WHEN a.atttypid THEN a.atttypmod ELSE b.modifier END), b.typcategory::text,
       a.attnum::int
FROM pg_attribute a JOIN base b ON b.declared = a.atttypid
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
"""Name; base type in the catalog, and as declared; its category; the column's number."""

RELATION = """
SELECT c.oid, c.relkind, has_table_privilege(c.oid, 'SELECT') FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s
"""
"""The table's number, what it is, and whether this user may read it."""

SIZE = """
SELECT sum(p.reltuples) FILTER (WHERE p.reltuples >= 0)::bigint, coalesce(sum(pg_table_size(p.oid)), 0)::bigint,
       coalesce(sum(pg_indexes_size(p.oid)), 0)::bigint
FROM (SELECT c.oid, c.reltuples FROM pg_class c WHERE c.oid = %(oid)s AND c.relkind <> 'p' UNION ALL
      SELECT c.oid, c.reltuples FROM pg_partition_tree(%(oid)s) leaf
      JOIN pg_class c ON c.oid = leaf.relid WHERE leaf.isleaf AND c.oid <> %(oid)s) p
"""
"""Rows by the newest ANALYZE, bytes, and bytes of indexes; of a partitioned table, of its parts."""

LEADING_INDEX = """
SELECT EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
               WHERE i.indrelid = %s AND a.attname = %s AND i.indisvalid AND i.indpred IS NULL)
"""
"""Whether an index starts with a column."""

MOMENT = """
SELECT pg_export_snapshot(), pg_current_snapshot()::text, now(),
       CASE WHEN pg_is_in_recovery() THEN greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())
       ELSE pg_current_wal_insert_lsn() END::text
"""
"""A snapshot's name, which transactions it sees, when it was taken, and a position of the log that none of them ended
behind. A standby shows a commit a moment before it counts it as replayed, and never before it was received."""

REPLAYED = "SELECT NOT pg_is_in_recovery() OR pg_last_wal_replay_lsn() >= %s::pg_lsn"
"""Whether a server has what another one had at a position of the log."""

POSITION = "SELECT pg_current_wal_insert_lsn()::text, pg_current_snapshot()::text"
"""Up to where a primary has written its log, and which transactions it sees."""


def import_snapshot(name: str, timeout_seconds: float | None) -> str:
    """Return what a reader's session says first, after which it sees what the exporter sees.

    `BEGIN` is a part of it: without, a reader that fetches all rows at once would read something newer, in silence.
    """
    return (
        f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET TRANSACTION SNAPSHOT {text_literal(name)}; "
        f"SET LOCAL TimeZone = 'UTC'; SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}; "
        f"SET LOCAL statement_timeout = {int(1000 * (timeout_seconds or 0)):d}"
    )


# -- the change feed ---------------------------------------------------------------------------------------------------

LOOK_FOR_THE_CLIENT = "SET client_connection_check_interval = '10s'"
"""So often the server looks, in the midst of a long answer too, whether whoever asked is still there."""

TRY_LOCK = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"
UNLOCK = "SELECT pg_advisory_unlock(hashtextextended(%s, 0))"
"""Whether this session has the lock of a name now; it keeps it until it ends."""

PUBLICATION = "SELECT xmin::text FROM pg_publication WHERE pubname = %s"
"""Which transaction defined it: another one when what it publishes was altered, and the same when tables come or go."""

_MEMBERS = """
SELECT t.schemaname, t.tablename, string_agg(concat_ws('.', p.oid, c.oid, w.schema, w.number), ' ' ORDER BY w.number)
FROM pg_publication p JOIN pg_publication_tables t ON t.pubname = p.pubname
JOIN pg_namespace n ON n.nspname = t.schemaname JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
LEFT JOIN (
  SELECT prpubid AS publication, prrelid AS relation, NULL::oid AS schema, oid AS number FROM pg_publication_rel%s
) w ON w.publication = p.oid AND (w.relation = c.oid OR w.schema = n.oid)
WHERE p.pubname = %%s GROUP BY t.schemaname, t.tablename
"""
_BY_SCHEMA = """
  UNION ALL SELECT pnpubid, NULL::oid, pnnspid, oid FROM pg_publication_namespace"""


def members(server_version: int) -> str:
    """Return the query for the tables of a publication, each with a name of each of its memberships.

    A table may be a member by itself, with its schema, or with all tables; one that was taken out and put back is one
    by another name.

    Args:
        server_version: As the server says it, for example 150004; before 15 no schema could be published.
    """
    return _MEMBERS % (_BY_SCHEMA if server_version >= 150_000 else "")


CREATE_SLOT = "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')"
SLOT = "SELECT confirmed_flush_lsn::text, wal_status FROM pg_replication_slots WHERE slot_name = %s"
FLUSHED = "SELECT pg_current_wal_flush_lsn()::text"
FLUSH = "SET LOCAL synchronous_commit = local; SELECT pg_logical_emit_message(true, 'backfill_assets', '')"
"""What a transaction does that flushes the log, without waiting for a standby; the message is for nobody."""

ENDED_XID = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text"
"""The one after the newest transaction that has ended; those that are open, or wait for a standby, may be newer."""

NEWEST_XID = "SELECT pg_current_xact_id()::text"
"""A transaction that is newer than all that have written anything yet."""

OLDEST_XID = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text"
"""The oldest transaction that has not ended, or the next one."""

ADVANCE = "SELECT pg_replication_slot_advance(%s, %s::pg_lsn)"

_UNIQUE = """
  SELECT coalesce(jsonb_agg(u.columns), '[]') FROM (
    SELECT jsonb_agg(a.attname) AS columns FROM pg_index i
    CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS k(number, place)
    LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number AND a.attnotnull
    WHERE i.indrelid = {table} AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND k.place <= i.indnkeyatts
    GROUP BY i.indexrelid
  ) u"""

UNIQUE_COLUMNS = _UNIQUE.format(table="%s")
"""The columns of each index by which no two rows of a table are the same. NULL stands for an expression, and for a
column that may be NULL: an index lets there be many rows with that."""

CAPTURED = f"""
SELECT c.oid::bigint, c.relreplident, c.relkind <> 'r' OR c.relhassubclass OR c.relispartition,
       EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attgenerated <> '' AND NOT a.attisdropped),
       ({_UNIQUE.format(table="c.oid")})
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s
"""
"""A table's number; what of a row's former state a change comes with (`f` is all of it); whether it is in parts, or is
one; whether it has generated columns; what `UNIQUE_COLUMNS` says."""

STORED = f"""{_BASES}
SELECT c.oid::bigint, c.relfilenode::text, a.attname, a.attnum::int, coalesce('default ' || d.oid, a.xmin::text),
       a.atthasmissing, b.typname::text,
       (SELECT coalesce(jsonb_object_agg(e.oid::text, e.enumlabel), '{{}}') FROM pg_enum e
        WHERE e.enumtypid = b.oid),
       EXISTS (SELECT FROM pg_publication_rel r WHERE r.prrelid = c.oid), c.reltoastrelid::text
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN base b ON b.declared = a.atttypid
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum WHERE c.oid = ANY(%s::oid[])
"""
"""Of each column of some tables: the table's number, the file that its rows are in; the column's name, its number, and
what is another one when it is defined anew: the default's number (whoever writes all rows anew, as `VACUUM FULL` does,
touches a column that was added with a default, but not that), or which transaction defined it; whether rows that were
there when it was added have a default without having been written; its base type, and the
labels of an enum by their numbers; whether the server would refuse to leave the table out of its log for a while; the
number of what has its large values, which is another one after that, and not after `TRUNCATE` or `VACUUM FULL`."""

SENDS_WHOLE_ROWS = """
SELECT coalesce(bool_and(c.relreplident = 'f'), true) FROM pg_class c WHERE c.relkind <> 'p' AND (
  c.oid = %(oid)s OR c.oid IN (SELECT relid FROM pg_partition_tree(%(oid)s)))
"""
"""Whether changes come with all of a row as it was before; of a partitioned table, those of all parts."""

PARTS = """
WITH RECURSIVE below(oid) AS (
  SELECT inhrelid FROM pg_inherits WHERE inhparent = %s
  UNION SELECT i.inhrelid FROM pg_inherits i JOIN below b ON i.inhparent = b.oid)
SELECT n.nspname, c.relname FROM below JOIN pg_class c USING (oid) JOIN pg_namespace n ON n.oid = c.relnamespace
"""
"""Schema and name of each table that a partitioned table consists of, or that inherits from one."""

PUBLISHES_LESS = """
SELECT NOT (p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate) OR EXISTS (
  SELECT FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = ANY(%s::oid[])
  AND (to_jsonb(r) ->> 'prqual' IS NOT NULL OR to_jsonb(r) ->> 'prattrs' IS NOT NULL))
FROM pg_publication p WHERE p.pubname = %s
"""
"""Whether a publication leaves out operations; or rows or columns of some tables, by their numbers."""

PEEK = """
SELECT lsn::text, data FROM pg_logical_slot_peek_binary_changes(
  %s, %s::pg_lsn, %s, 'proto_version', '1', 'publication_names', %s)
"""
"""Position and message of each change that a slot has kept, up to a position and about so many; they stay there."""


def create_publication(name: str, tables: Sequence[tuple[str, str]]) -> str:
    """Return the statement that publishes some tables, by schema and name."""
    return f"CREATE PUBLICATION {identifier(name)} FOR TABLE {_listed(tables)}"


def add_to_publication(name: str, tables: Sequence[tuple[str, str]]) -> str:
    """Return the statement that publishes more tables."""
    return f"ALTER PUBLICATION {identifier(name)} ADD TABLE {_listed(tables)}"


def _listed(tables: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{identifier(schema)}.{identifier(name)}" for schema, name in tables)
