"""What the fields of a dataclass may be, in the words of messages and of `--help`."""

from dataclasses import dataclass
from typing import Annotated

import pytest

from fca.validation import Allowed, describe_allowed


@dataclass
class Net:
    """A network that somebody wrote."""

    width: Annotated[int, Allowed(1)]
    name: str | None
    weights: None = None  # it starts from scratch


@pytest.mark.parametrize(
    ("field", "words"),
    [("width", "a whole number, at least 1"), ("name", "a text, not empty, or null"), ("weights", "null")],
)
def test_every_field_is_named_in_words(field, words):
    assert describe_allowed(Net, field) == words
