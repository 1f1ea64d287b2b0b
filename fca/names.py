"""Names that a person takes for one: equal but for case, spaces, the way an accent is written, or 01 and 1.0 for 1.

Names are compared to the letter everywhere, so two such spellings of one class would be two classes. They are refused
where tables, folders and files come in, and where a name is joined to others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from unicodedata import normalize

import pandas as pd

from fca.types import FcaError

ONE_SPELLING = "one spelling each: these differ only in case, spaces, the way an accent is written, or 01 and 1.0 for 1"
_WHOLE_NUMBER = re.compile(r"\+?(-?)0*(\d+)(?:\.0*)?", re.ASCII)


def comparable(name: str) -> str:
    """What is equal for two spellings of one name.

    NFC, without case, without spaces around it, one space for several; of a whole number its value. 1.50 and 1.5 stay
    two names, as versions are.

    >>> comparable(" Red  Fox "), comparable("cafe\\u0301") == comparable("Caf\\u00e9")
    ('red fox', True)
    >>> comparable("007"), comparable("7.0"), comparable("1.10")
    ('7', '7', '1.10')
    """
    words = " ".join(name.split())
    folded = words.lower() if words.isascii() else normalize("NFC", normalize("NFC", words).casefold())
    number = _WHOLE_NUMBER.fullmatch(folded)
    return folded if number is None else number[1] + number[2]


def quoted(name: str) -> str:
    """A name in quotes, so that spaces around it are seen; with the codes of letters that may look like others.

    >>> quoted("cat "), quoted("Caf\\u00e9")[-11:]
    ("'cat '", "('Caf\\\\xe9')")
    """
    return repr(name) if name.isascii() else f"{name!r} ({name!a})"


def visible(name: str) -> str:
    """A name for a message; in quotes where it would be hard to see: empty, or with spaces around it.

    >>> visible("cat"), visible("cat "), visible("")
    ('cat', "'cat '", "''")
    """
    return name if name and name == name.strip() else quoted(name)


def spellings(names: Iterable[str]) -> list[list[str]]:
    """The names that are several spellings of one, together; in the order in which they come.

    >>> spellings(["cat", "dog", "Cat", "cat "])
    [['cat', 'Cat', 'cat ']]
    """
    alike: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        alike.setdefault(comparable(name), []).append(name)
    return [forms for forms in alike.values() if len(forms) > 1]


def have_spellings(names: pd.Series) -> bool:
    """Whether any of these different names are spellings of one; of a million names in a second.

    >>> have_spellings(pd.Series(["p01", "p1"])), have_spellings(pd.Series(["01", "1"]))
    (False, True)
    """
    if names.str.contains(r"[^\x20-\x7e]").any():
        return bool(names.map(comparable).duplicated().any())
    words = names.str.strip().str.replace(r" +", " ", regex=True).str.lower()  # as `comparable` does with ASCII
    numbers = words.str.replace(r"^\+?(-?)0*(\d+)(\.0*)?$", r"\1\2", regex=True)
    return bool(numbers.duplicated().any())


def check_spellings(what: str, names: pd.Series, counted: str, step: str) -> None:
    """Raises FcaError listing the names that are several spellings of one, with how often each is there.

    counted: what a name stands at, for the message: images.
    """
    if not have_spellings(names.drop_duplicates()):
        return
    counts = {str(name): int(n) for name, n in names.value_counts(sort=False).items()}
    several = spellings(counts)
    lists = [", ".join(f"{quoted(name)} ({counts[name]} {counted})" for name in forms) for forms in several]
    more = f"; and {len(lists) - 3} more" if len(lists) > 3 else ""
    raise FcaError(what, "; ".join(lists[:3]) + more, ONE_SPELLING, step)


def check_meant(what: str, names: Iterable[str], known: Iterable[str], of: str) -> None:
    """Raises FcaError for a name that is none of the known ones but another spelling of one, naming that.

    of: whose the known names are, for the message.
    """
    there = set(known)
    strange = [name for name in names if name not in there]
    if not strange:
        return
    meant = {comparable(name): name for name in sorted(there)}
    for name in strange:
        if (right := meant.get(comparable(name))) is not None:
            raise FcaError(what, quoted(name), f"spelt as {of} has it: {quoted(right)}", "correct the spelling")
