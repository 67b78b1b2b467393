"""What goes wrong when a backfill runs beside a live stream, done on Spark and Delta; and the same with our own parts.

Each module holds one hazard: first as it happens to people, in the few lines that anybody would write, then the safe
way.

`python -m examples.hazards` runs all of them, and says of each case how many rows are wrong.
"""
