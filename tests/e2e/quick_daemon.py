"""Dagster's daemon, which looks for work every second instead of every thirty."""

from dagster._daemon import controller
from dagster._daemon.cli import main

controller.DEFAULT_DAEMON_INTERVAL_SECONDS = 1

if __name__ == "__main__":
    main()
