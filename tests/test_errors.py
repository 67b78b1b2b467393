"""The errors: the tree that their docstring draws, and what an error carries from one process to another."""

from __future__ import annotations

import copy
import inspect
import pickle
import re

import pytest

from backfill_assets import errors
from backfill_assets.errors import NOTHING_WRITTEN, BackfillAssetsError, WindowError

CLASSES = [c for _, c in inspect.getmembers(errors, inspect.isclass) if c.__module__ == errors.__name__]
LINE = re.compile(r"(?P<indent>[│ ]*)(?:[├└]── )?(?P<name>\w+Error)\b *(?P<says>.*)")


def drawn_tree():
    """Return (name, parent, what it says) for each line of the tree in the module's docstring."""
    lines = (errors.__doc__ or "").splitlines()
    tree, path = [], []
    for line in lines:
        match = LINE.fullmatch(line)
        if match is None:
            continue
        depth = len(match["indent"]) // 4 + ("── " in line)
        path[depth:] = [match["name"]]
        tree.append((match["name"], path[depth - 1] if depth else None, match["says"]))
    return tree


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes():
    """Every error is drawn under the class that it inherits from, and nothing is drawn that is not there."""
    ours = {c.__name__: next((b.__name__ for b in c.__bases__ if b in CLASSES), None) for c in CLASSES}
    drawn = drawn_tree()
    assert len(drawn) == len({name for name, _, _ in drawn})
    assert {name: parent for name, parent, _ in drawn} == ours
    assert len(ours) > 15


@pytest.mark.parametrize(("name", "says"), [(name, says) for name, _, says in drawn_tree() if says])
def test_the_tree_says_which_errors_a_retry_helps(name, says):
    """An error knows that a retry helps exactly where the tree says so."""
    assert getattr(errors, name).retry_helps == ("(a retry helps)" in says)


def test_some_errors_are_helped_by_a_retry():
    """The ones that another writer, a changing source, a file, the engine or a database causes, and no other."""
    helped = {"SourceChangedError", "CommitConflictError", "TableLockedError", "SparkGoneError"}
    helped |= {"EngineFailedError", "UncertainCommitError", "UnreadableSourceError", "UnreadableTableError"}
    helped |= {"HistoryUnavailableError", "SourceUnavailableError", "FeedBehindError", "FoldOvertakenError"}
    assert {c.__name__ for c in CLASSES if c.retry_helps} == helped


def test_a_message_is_three_sentences():
    """What failed, the state of the data, what to do: in this order."""
    error = BackfillAssetsError("It failed.", state=NOTHING_WRITTEN, remedy="Do it again.", key="2024-02-29")
    assert str(error) == "It failed. Nothing was written. Do it again."
    assert (error.what, error.state, error.remedy) == ("It failed.", "Nothing was written.", "Do it again.")
    assert error.facts == {"key": "2024-02-29"}


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_error_survives_pickling_with_its_facts(kind):
    """On the other side of a process boundary an error is of the same class, and has its sentences and facts."""
    error = kind("It failed.", state="As it was.", remedy="Again.", partitions=["2024-02-29"], version=7)
    for made in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(made) is kind
        assert str(made) == "It failed. As it was. Again."
        assert (made.what, made.state, made.remedy) == (error.what, error.state, error.remedy)
        assert made.facts == {"partitions": ["2024-02-29"], "version": 7}


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_error_is_caught_by_the_root(kind):
    """One `except BackfillAssetsError` catches every error of ours, and each says in a sentence what it is."""
    assert issubclass(kind, BackfillAssetsError)
    assert kind.__doc__
    assert kind.__doc__.strip().endswith(".")


def test_a_wrong_window_is_a_value_error():
    """Whoever validates input with `except ValueError` catches wrong windows too."""
    assert issubclass(WindowError, ValueError)


def test_state_and_remedy_cannot_be_forgotten():
    """An error without its three sentences cannot be made."""
    with pytest.raises(TypeError, match="missing 2 required keyword-only arguments: 'state' and 'remedy'"):
        BackfillAssetsError("It failed.")
