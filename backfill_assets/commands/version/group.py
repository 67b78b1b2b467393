"""`backfill-assets version`: the group of what is done with versions of tables, in the order in which it is done."""

from __future__ import annotations

import click

from backfill_assets.commands.version.deploy import deploy
from backfill_assets.commands.version.new import new
from backfill_assets.commands.version.retire import retire
from backfill_assets.commands.version.status import status
from backfill_assets.commands.version.switch import cutover, rollback

_IN_ORDER = (new, deploy, cutover, rollback, retire, status)


class _InOrder(click.Group):
    """A group whose commands are listed in the order in which they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return their names."""
        del ctx
        return [str(command.name) for command in _IN_ORDER]


@click.group(cls=_InOrder, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def version() -> None:
    """Rebuild a table beside itself: other types, grain, zone, key or logic; then cut over, and back.

    A new version is a table of its own, `bronze/orders__v2`. Readers that say `bronze/orders` get the version that is
    current; one commit switches a table together with every table made of it.

    \b
      backfill-assets version new bronze/orders --downstream     writes the specs, to be edited
      backfill-assets version deploy bronze/orders --check       says what will be done, and what it costs
      backfill-assets version deploy bronze/orders               makes, copies and compares
      backfill-assets live bronze/orders__v2                     if it has a stream: beside the old one's
      backfill-assets version cutover bronze/orders              one commit, for all readers
      backfill-assets version rollback bronze/orders             and back
      backfill-assets version retire bronze/orders --yes bronze/orders
    """


for command in _IN_ORDER:
    version.add_command(command)
