"""Messages of `pgoutput`, as a server sent them, decoded: what is not sent again is what it was, or is not there at all."""

from __future__ import annotations

import pytest

from backfill_assets.core.live.pgoutput import Begin, Change, Commit, Decoder, Message, Relation
from backfill_assets.errors import ChangeFeedError

NOTE = "x" * 3000
"""A value so large that it lies outside of its row, where it is sent only if it has changed."""

BEGIN = b"B\0\0\0\0\x01\xafn\xe0\0\x03\x03\xff\xf9\xefS`\0\0\x02\xf6"
COMMIT = b"C\0\0\0\0\0\x01\xafn\xe0\0\0\0\0\x01\xafo\x10\0\x03\x03\xff\xf9\xefS`"
FULL = b"R\0\0@\x01public\0t\0f\0\x03\x01id\0\0\0\0\x14\xff\xff\xff\xff\x01note\0\0\0\0\x19\xff\xff\xff\xff\x01n\0\0\0\0\x17\xff\xff\xff\xff"
BY_KEY = b"R\0\0@\x01public\0t\0d\0\x03\x01id\0\0\0\0\x14\xff\xff\xff\xff\0note\0\0\0\0\x19\xff\xff\xff\xff\0n\0\0\0\0\x17\xff\xff\xff\xff"
INSERTED = b"I\0\0@\x01N\0\x03t\0\0\0\x011t\0\0\x0b\xb8" + NOTE.encode() + b"t\0\0\0\x011"
UPDATED = (
    b"U\0\0@\x01O\0\x03t\0\0\0\x011t\0\0\x0b\xb8" + NOTE.encode() + b"t\0\0\0\x011N\0\x03t\0\0\0\x011ut\0\0\0\x012"
)
UPDATED_BY_KEY = b"U\0\0@\x01N\0\x03t\0\0\0\x011ut\0\0\0\x013"
KEY_UPDATED = b"U\0\0@\x01K\0\x03t\0\0\0\x011nnN\0\x03t\0\0\0\x012ut\0\0\0\x013"


def decoded(*messages: bytes) -> list[Message | None]:
    decoder = Decoder()
    return [decoder.decode(message) for message in messages]


def test_a_transaction_as_it_was_sent():
    """Its id and commit, the table, the row, where the log then is."""
    began, relation, inserted, ended = decoded(BEGIN, FULL, INSERTED, COMMIT)
    assert began == Begin(758, 0x1AF6EE0, 1_795_507_674_887_008)
    assert relation == Relation(0x4001, "public", "t", ("id", "note", "n"), True)
    assert inserted == Change("c", relation, None, {"id": "1", "note": NOTE, "n": "1"})
    assert ended == Commit(0x1AF6F10)


def test_a_large_value_that_is_not_sent_again_is_what_it_was():
    """The server says `u` in its place; the row from before it has it."""
    assert b"1ut" in UPDATED
    _, updated = decoded(FULL, UPDATED)
    assert isinstance(updated, Change)
    assert updated.before == {"id": "1", "note": NOTE, "n": "1"}
    assert updated.after == {"id": "1", "note": NOTE, "n": "2"}


def test_a_large_value_of_which_nothing_is_known_is_not_there():
    """Without the row from before, or with its key alone, whose other columns come as NULL and are none."""
    _, updated, renumbered = decoded(BY_KEY, UPDATED_BY_KEY, KEY_UPDATED)
    assert isinstance(updated, Change)
    assert isinstance(renumbered, Change)
    assert updated.after == {"id": "1", "n": "3"}
    assert renumbered.after == {"id": "2", "n": "3"}


@pytest.mark.parametrize("wrong", [b"?", UPDATED, FULL + UPDATED[:-1], FULL[:20], b"I\0\0@\x02N"])
def test_what_cannot_be_decoded_is_said(wrong):
    """An unknown kind, a table that nobody named, a message that is cut."""
    messages = (FULL, wrong.removeprefix(FULL)) if wrong.startswith(FULL) else (wrong,)
    with pytest.raises(ChangeFeedError, match="cannot be decoded"):
        decoded(*messages)
