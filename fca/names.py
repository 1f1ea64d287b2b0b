"""Spellings of one name: they differ only in case, spaces, the way an accent is written, or 01 and 1.0 for 1.

Names are compared exactly everywhere, so two such spellings of one class would be two classes. They are refused where
tables, folders and files are read, and where a name is joined to other tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from unicodedata import normalize

import pandas as pd

from fca.types import FcaError

ONE_SPELLING = "one spelling each: these differ only in case, spaces, the way an accent is written, or 01 and 1.0 for 1"
MAX_DESCRIBED = 3  # names with several spellings in a message
_WHOLE_NUMBER = re.compile(
    r"\+?(-?)0*(\d+)(?:\.0*)?", re.ASCII
)  # groups: the minus sign, the digits without leading zeros


def comparison_key(name: str) -> str:
    """A text that is the same for all spellings of one name.

    The name is normalised: Unicode form NFC, no upper case, single spaces, none at the ends; a whole number without
    leading zeros and decimals. 1.50 and 1.5 stay two names, because they may be versions.

    >>> comparison_key(" Red  Fox "), comparison_key("cafe\\u0301") == comparison_key("Caf\\u00e9")
    ('red fox', True)
    >>> comparison_key("007"), comparison_key("7.0"), comparison_key("1.10")
    ('7', '7', '1.10')
    """
    with_single_spaces = " ".join(name.split())
    if with_single_spaces.isascii():  # much faster
        folded = with_single_spaces.lower()
    else:
        folded = normalize("NFC", normalize("NFC", with_single_spaces).casefold())  # casefold may undo NFC

    number = _WHOLE_NUMBER.fullmatch(folded)
    if number is None:
        return folded
    sign, digits = number.groups()
    return sign + digits


def quoted(name: str) -> str:
    """A name in quotes, so that spaces at its ends are seen.

    If it is not ASCII, the name with the codes of such letters follows, because they may look like others.

    >>> quoted("cat "), quoted("Caf\\u00e9")[-11:]
    ("'cat '", "('Caf\\\\xe9')")
    """
    return repr(name) if name.isascii() else f"{name!r} ({name!a})"


def visible(name: str) -> str:
    """A name for a message; in quotes if it would be hard to see because it is empty or has spaces at its ends.

    >>> visible("cat"), visible("cat "), visible("")
    ('cat', "'cat '", "''")
    """
    is_easy_to_see = name != "" and name == name.strip()
    return name if is_easy_to_see else quoted(name)


def groups_of_spellings(names: Iterable[str]) -> list[list[str]]:
    """The spellings of each name that has several of them, in the order of their first occurrence.

    >>> groups_of_spellings(["cat", "dog", "Cat", "cat "])
    [['cat', 'Cat', 'cat ']]
    """
    spellings_by_key: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        spellings_by_key.setdefault(comparison_key(name), []).append(name)
    return [forms for forms in spellings_by_key.values() if len(forms) > 1]


def has_spellings(names: pd.Series) -> bool:
    """Whether any of these names, all of which differ, are spellings of one name. A million names take a second.

    >>> has_spellings(pd.Series(["p01", "p1"])), has_spellings(pd.Series(["01", "1"]))
    (False, True)
    """
    has_other_letters = names.str.contains(r"[^\x20-\x7e]").any()
    if has_other_letters:
        return bool(names.map(comparison_key).duplicated().any())

    # The same as `comparison_key` for printable ASCII, but by operations on the whole column.
    folded = names.str.strip().str.replace(r" +", " ", regex=True).str.lower()
    keys = folded.str.replace(r"^\+?(-?)0*(\d+)(\.0*)?$", r"\1\2", regex=True)
    return bool(keys.duplicated().any())


def check_spellings(what: str, names: pd.Series, counted: str, step: str) -> None:
    """Raise FcaError if a name occurs in several spellings; the message lists these and how often each of them occurs.

    names:   may repeat.
    counted: what is counted for each name, such as "images", for the message.
    what:    what the names are, for the message.
    step:    the advice in it.
    """
    if not has_spellings(names.drop_duplicates()):  # fast, and most tables have none
        return

    counts = {str(name): int(count) for name, count in names.value_counts(sort=False).items()}
    descriptions = []
    for spellings in groups_of_spellings(counts):
        spellings_with_counts = [f"{quoted(name)} ({counts[name]} {counted})" for name in spellings]
        descriptions.append(", ".join(spellings_with_counts))

    text = "; ".join(descriptions[:MAX_DESCRIBED])
    if len(descriptions) > MAX_DESCRIBED:
        text += f"; and {len(descriptions) - MAX_DESCRIBED} more"
    raise FcaError(what, text, ONE_SPELLING, step)


def check_meant(what: str, names: Iterable[str], known: Iterable[str], of: str) -> None:
    """Raise FcaError for a name that is not among the known names but another spelling of one of them.

    The message has the known spelling. Names that resemble no known name pass: they are not this function's concern.

    names: what a user typed.
    known: the exact spellings.
    what:  what the names are, such as "subset.classes".
    of:    what has the known names, such as "the data set".
    The message quotes `what` and `of`.
    """
    known_names = set(known)
    unknown_names = [name for name in names if name not in known_names]
    if not unknown_names:
        return

    known_name_by_key = {comparison_key(name): name for name in sorted(known_names)}
    for name in unknown_names:
        correct_name = known_name_by_key.get(comparison_key(name))
        if correct_name is not None:
            raise FcaError(what, quoted(name), f"spelt as {of} has it: {quoted(correct_name)}", "correct the spelling")
