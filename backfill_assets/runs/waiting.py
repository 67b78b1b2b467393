"""A notice before slow work."""

from __future__ import annotations

import click


def say_what_takes_long(sentence: str) -> None:
    """Print a sentence on standard error if this process runs a command whose answer is not JSON."""
    asked = click.get_current_context(silent=True)
    if asked is not None and not asked.params.get("as_json"):
        click.echo(sentence, err=True)
