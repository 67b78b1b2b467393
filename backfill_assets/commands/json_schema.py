"""`backfill-assets json-schema`: what editors need to help with a `defs.yaml`."""

from __future__ import annotations

import click


@click.command("json-schema")
def json_schema() -> None:
    """Print the JSON schema of a `defs.yaml`, with which editors complete its fields, explain them, and mark mistakes.

    \b
    Examples:
      backfill-assets json-schema > table.schema.json

    First line of each `defs.yaml` then: `# yaml-language-server: $schema=<path of that file>`
    """
    import json

    from backfill_assets.assets.component import yaml_schema

    click.echo(json.dumps(yaml_schema(), indent=2))
