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
_WHOLE_NUMBER = re.compile(r"\+?(-?)0*(\d+)(?:\.0*)?", re.ASCII)


def comparison_key(name: str) -> str:
    """A text that is equal for two spellings of one name.

    NFC, without case, without spaces around it, one space for several; of a whole number its value. 1.50 and 1.5 stay
    two names, as versions are.

    >>> comparison_key(" Red  Fox "), comparison_key("cafe\\u0301") == comparison_key("Caf\\u00e9")
    ('red fox', True)
    >>> comparison_key("007"), comparison_key("7.0"), comparison_key("1.10")
    ('7', '7', '1.10')
    """
    with_single_spaces = " ".join(name.split())
    if with_single_spaces.isascii():
        folded = with_single_spaces.lower()
    else:
        folded = normalize("NFC", normalize("NFC", with_single_spaces).casefold())

    number = _WHOLE_NUMBER.fullmatch(folded)
    if number is None:
        return folded
    sign, digits = number.groups()
    return sign + digits


def quoted(name: str) -> str:
    """A name in quotes, which show spaces around it; with the codes of letters that may look like other letters.

    >>> quoted("cat "), quoted("Caf\\u00e9")[-11:]
    ("'cat '", "('Caf\\\\xe9')")
    """
    return repr(name) if name.isascii() else f"{name!r} ({name!a})"


def visible(name: str) -> str:
    """A name for a message; in quotes if it would be hard to see: empty, or with spaces around it.

    >>> visible("cat"), visible("cat "), visible("")
    ('cat', "'cat '", "''")
    """
    is_easy_to_see = name != "" and name == name.strip()
    return name if is_easy_to_see else quoted(name)


def groups_of_spellings(names: Iterable[str]) -> list[list[str]]:
    """The names that have several spellings: one list of spellings a name, in order of first occurrence.

    >>> groups_of_spellings(["cat", "dog", "Cat", "cat "])
    [['cat', 'Cat', 'cat ']]
    """
    spellings_by_key: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        spellings_by_key.setdefault(comparison_key(name), []).append(name)
    return [forms for forms in spellings_by_key.values() if len(forms) > 1]


def has_spellings(names: pd.Series) -> bool:
    """Whether any of these different names are spellings of one name; a second for a million names.

    >>> has_spellings(pd.Series(["p01", "p1"])), has_spellings(pd.Series(["01", "1"]))
    (False, True)
    """
    has_other_letters = names.str.contains(r"[^\x20-\x7e]").any()
    if has_other_letters:
        return bool(names.map(comparison_key).duplicated().any())

    # as `comparison_key` does with ASCII
    folded = names.str.strip().str.replace(r" +", " ", regex=True).str.lower()
    keys = folded.str.replace(r"^\+?(-?)0*(\d+)(\.0*)?$", r"\1\2", regex=True)
    return bool(keys.duplicated().any())


def check_spellings(what: str, names: pd.Series, counted: str, step: str) -> None:
    """Raises FcaError listing the names that are several spellings of one name, with how often each occurs.

    counted: the unit of these counts, for the message: images.
    """
    if not has_spellings(names.drop_duplicates()):
        return

    counts = {str(name): int(count) for name, count in names.value_counts(sort=False).items()}
    lists = []
    for forms in groups_of_spellings(counts):
        forms_with_counts = [f"{quoted(name)} ({counts[name]} {counted})" for name in forms]
        lists.append(", ".join(forms_with_counts))

    text = "; ".join(lists[:3])
    if len(lists) > 3:
        text += f"; and {len(lists) - 3} more"
    raise FcaError(what, text, ONE_SPELLING, step)


def check_meant(what: str, names: Iterable[str], known: Iterable[str], of: str) -> None:
    """Raises FcaError for a name that is not known but another spelling of a known name, giving that.

    of: the owner of the known names, for the message.
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
