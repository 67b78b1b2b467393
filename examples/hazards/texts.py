"""The four hazards of a backfill beside a live stream, in words: what people do, what goes wrong, what prevents it."""

from __future__ import annotations

from dataclasses import dataclass

SAFE = "safe"


@dataclass(frozen=True, slots=True)
class Hazard:
    """One way in which a backfill goes wrong.

    Args:
        people: What people do, in two sentences.
        cases: By name, what was done and why it went wrong; numbers of the case are filled in.
        safe: What the safe way did, and which mechanism prevents it.
    """

    name: str
    title: str
    people: str
    cases: dict[str, tuple[str, str]]
    safe: tuple[str, str]


HAZARDS = (
    Hazard(
        "collision",
        "Two writers of one range",
        "A stream has written the table since 2025-12-30, and somebody loads the whole week from the old system's "
        "export. Both write the last two days, and each is sure that it is the only one.",
        {
            "append": (
                "the backfill appends the week while the stream appends its events",
                "Delta lets any two appends pass: each is right alone, and orders that both know are there twice.",
            ),
            "overwrite_first": (
                "it overwrites the week with `replaceWhere`, and the stream appends what it reads next",
                "The overwrite was clean and no commit conflicts, since the stream's comes later: orders that the "
                "export had already are appended beside it.",
            ),
            "overwrite_last": (
                "the stream is ahead, and the week is overwritten with an export that was taken at noon",
                "The overwrite removes what only the stream knew: the afternoon's orders are gone, and payments and "
                "refunds are undone.",
            ),
        },
        (
            "the whole week is launched from the noon's export while a live writer appends: {published} days "
            "published, {left_out} left to the stream, {folded} published again with the late refunds",
            "The fence: history overwrites whole days before it and is cut off at it, the live writer appends only at "
            "or after it and keeps late events beside the table, from where the next launch folds them in.",
        ),
    ),
    Hazard(
        "retry",
        "A retry that is not idempotent",
        "A job appends history in chunks, and dies half-way. It is started again, from the start, as every scheduler "
        "does by itself.",
        {
            "append_again": (
                "the source goes away after {committed} of {chunks} chunks were committed; the job is run again",
                "Each commit was atomic, the job was not: nothing knows that the first {committed} chunks are there, "
                "so they come twice.",
            ),
        },
        (
            "the same death after {committed} chunks; launched again for what was missing ({left_out} days left out), "
            "then once more for everything",
            "Each chunk replaces its own days in one commit that carries a receipt: doing it again gives the same "
            "rows, and what has a receipt can be left out.",
        ),
    ),
    Hazard(
        "overwhelmed",
        "A source that is asked for too much",
        "A backfill opens a query for each day, all at once, at a service that serves {served_at_most} readers. A day "
        "that fails is logged as a warning, and the job goes on and ends green.",
        {
            "all_at_once": (
                "{days} days are asked for at the same time: {peak} readers at once, {refused} refused",
                "The source protects itself; the job does not compare what it wrote with what there was, so nobody "
                "misses the days.",
            ),
        },
        (
            "the same {days} days: at most {peak} readers at once, {refused} refused",
            "Chunks of whole days, read by no more tasks at once than Spark has cores; a read that fails fails its "
            "chunk, and each day's rows must equal what the source says it has before any of it is published.",
        ),
    ),
    Hazard(
        "boundary",
        "Two ideas of where history ends",
        'Whoever loads history writes down "up to the moment when the stream began", and whoever runs the stream '
        '"from that moment on". The moment is written down twice: in two places, by two people, perhaps in two zones.',
        {
            "inclusive": (
                "history takes `BETWEEN ... AND cutover`, the stream `>= cutover`",
                "BETWEEN includes both ends: orders made exactly at the cutover are taken by both. Subscriptions "
                "renew at midnight.",
            ),
            "other_zone": (
                "history takes `< now()` of a clock in New York, written without its zone and read as UTC",
                "The stream began at 00:00 UTC, when that clock showed 19:00: five hours belong to nobody.",
            ),
        },
        (
            "one fence for both; while the stream writes it is moved over a day, at 09:30 of a clock in New York, and "
            "that day is launched",
            "The fence is one instant in UTC, stored in the table and read by both sides, half-open (`<` before it, "
            "`>=` from it on) and always the start of a day; an instant without a zone is refused.",
        ),
    ),
)
