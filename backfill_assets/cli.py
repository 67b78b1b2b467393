"""`backfill-assets`: what Dagster's own command line lacks. The group alone; each command has its own file."""

from __future__ import annotations

import click

from backfill_assets.commands.apply import apply
from backfill_assets.commands.capture import capture
from backfill_assets.commands.demo import demo
from backfill_assets.commands.estimate import estimate
from backfill_assets.commands.fence import fence
from backfill_assets.commands.gaps import gaps
from backfill_assets.commands.history import history
from backfill_assets.commands.init import init
from backfill_assets.commands.live import live
from backfill_assets.commands.once import once
from backfill_assets.commands.plan import plan
from backfill_assets.commands.preview import preview
from backfill_assets.commands.reconcile import reconcile
from backfill_assets.commands.reset import reset
from backfill_assets.commands.resume import resume
from backfill_assets.commands.schema import schema
from backfill_assets.commands.status import status
from backfill_assets.commands.stop import stop
from backfill_assets.commands.terminal import Commands
from backfill_assets.commands.undo import undo
from backfill_assets.commands.verify import verify
from backfill_assets.commands.version.group import version
from backfill_assets.commands.views import views


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="backfill-assets")
def main() -> None:
    """Safe historical backfills for Delta tables, launched from Dagster and run on Spark.

    A backfill itself is an ordinary Dagster launch:

    \b
      dg launch --assets 'key:"bronze/orders"' --partition-range 2023-01-01...2025-12-31

    These commands add what Dagster's own lack. They act on the lakehouse that the definitions name; where those name
    no root, on LAKEHOUSE_ROOT (default `.lakehouse`). Dagster's history is in DAGSTER_HOME (default `.dagster`; both
    in the project's folder, or in the working directory if that lies in no project).
    """


for command in (
    *(status, preview, estimate, plan, apply, stop, resume, reset, undo, gaps, history, reconcile, verify),
    *(capture, fence, live, once, schema, version, views, init, demo),
):
    main.add_command(command)


if __name__ == "__main__":
    main()
