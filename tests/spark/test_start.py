"""The start of a JVM, as other people on the machine and readers of the output see it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from backfill_assets.errors import SparkUnavailableError
from backfill_assets.spark.redaction import is_secret, redacted, secrets_in
from backfill_assets.spark.settings import SparkSettings

REPOSITORY = Path(__file__).parents[2]
SECRET = r"canary /+= :#!\u0041\n ü"
ODD = {"spark.hadoop.fs.s3a.secret.key": SECRET, "spark.a.b": " = x", "spark.empty": "", "spark.c#d": "1:2"}

SCRIPT = """
import json, os, sys, glob
from pathlib import Path
from backfill_assets.spark.session import classic_config, start_session
from backfill_assets.spark.settings import SparkSettings

given = json.loads(sys.argv[1])
extra = {**json.load(sys.stdin), "spark.driver.extraJavaOptions": "-XX:+PrintFlagsFinal"}
session = start_session(classic_config(SparkSettings(master="local[1]", driver_memory="600m", extra=extra)))

def arguments(process):
    try:
        return process.read_bytes().decode(errors="replace")
    except OSError:  # it has ended since the listing
        return ""


folder = Path(os.environ["TMPDIR"], "folder")
folder.mkdir()
(folder / "bücher").write_text("x")
lists = [arguments(process) for process in Path("/proc").glob("[0-9]*/cmdline")]
print(json.dumps({
    "in a list": [line for line in lists if "can" + "ary" in line],
    "has": {name: session.conf.get(name, None) for name in given},
    "environment": dict(os.environ).get("PYSPARK_SUBMIT_ARGS"),
    "sees": len(session.read.text(str(folder)).inputFiles()),
    "left": glob.glob(os.path.join(os.environ["TMPDIR"], "spark-*.conf")),
}))
session.stop()
"""


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """A process that starts Spark with a secret, while its JVM prints thousands of lines to standard output."""
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(list(ODD))],
        input=json.dumps(ODD),
        cwd=REPOSITORY,
        env={**os.environ, "LC_ALL": "C", "TMPDIR": str(tmp_path_factory.mktemp("scratch"))},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.e2e
def test_standard_output_has_the_answer_alone(started: subprocess.CompletedProcess[str]):
    """What a JVM prints goes to standard error, so that the output of a command can be read by a program."""
    assert started.returncode == 0, started.stderr[-3000:]
    assert json.loads(started.stdout)
    assert "MaxHeapSize" in started.stderr


@pytest.mark.e2e
def test_settings_reach_the_jvm_in_no_list_of_processes(started: subprocess.CompletedProcess[str]):
    """Every letter of a setting arrives; none is in the arguments of any process, and the file that they came in is gone."""
    answer: dict[str, Any] = json.loads(started.stdout)
    assert answer["has"] == ODD
    assert (answer["in a list"], answer["left"], answer["environment"]) == ([], [], None)


@pytest.mark.e2e
def test_files_have_letters_of_any_script(started: subprocess.CompletedProcess[str]):
    """With `LC_ALL=C`, as scripts and images set it, Java would have ASCII alone, and leave out every file with another letter."""
    assert json.loads(started.stdout)["sees"] == 1


@pytest.mark.e2e
def test_the_code_cache_is_not_cut(started: subprocess.CompletedProcess[str]):
    """One level of the compiler alone would have 48 MB, full after minutes of small launches, and then no compiler at all."""
    (size,) = re.findall(r"ReservedCodeCacheSize\s+= (\d+)", started.stderr)
    assert int(size) >= 240 << 20


def test_secrets_are_known_by_name():
    """Spark's own rule for names, and what clouds call their keys; they are not in the text of the settings either."""
    names = (
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.azure.account.key.x",
        "spark.my.password",
        "spark.token",
    )
    assert all(map(is_secret, names))
    assert not any(map(is_secret, ("spark.sql.shuffle.partitions", "spark.hadoop.fs.s3a.endpoint")))
    settings = SparkSettings(remote="sc://host/;token=canary", extra=dict.fromkeys(names, "canary"))
    assert "canary" not in repr(settings)


def test_a_text_loses_its_secrets():
    """Values of secret settings and of Java's secret properties are hidden in a text; short and harmless ones stay."""
    config = {
        "spark.hadoop.fs.s3a.secret.key": "canary-1",
        "spark.my.secret.bits": "256",
        "spark.app.name": "backfill",
        "spark.driver.extraJavaOptions": "-Dtrust.password='canary two' -Duser.timezone=Etc/UTC",
    }
    text = "backfill: canary-1, canary two, 256, Etc/UTC"
    assert redacted(text, secrets_in(config)) == "backfill: (hidden), (hidden), 256, Etc/UTC"


def test_javas_options_that_cannot_be_taken_apart():
    """They are refused in words that do not show them."""
    with pytest.raises(SparkUnavailableError, match="no closing quotation") as caught:
        secrets_in({"spark.driver.extraJavaOptions": "-Dtrust.password='canary"})
    assert "canary" not in str(caught.value)
