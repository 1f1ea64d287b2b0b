"""A set's own splits: which of train, val and test each one is, by its name or by `dataset.splits`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from fca.names import visible
from fca.types import SPLITS, FcaError, choices_in_words

Splits = Mapping[str, str | None] | None
"""A set's own split name -> train, val or test, or null to leave its images out."""

USUAL_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev", "eval", "evaluation"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}


def usual_meaning(name: str) -> str | None:
    """train, val or test where a split has one of the usual names, in upper or lower case; None for another name.

    >>> usual_meaning("VALID"), usual_meaning("training_set"), usual_meaning("Test Set"), usual_meaning("shop")
    ('val', 'train', 'test', None)
    """
    without_set = re.sub(r"[ _-]?set$", "", name.strip().casefold())
    return USUAL_NAMES.get(without_set)


def known_split(name: str, splits: Splits) -> bool:
    """Whether it is known which split a set's own name means: `splits` maps it, or it is one of the usual names."""
    return name in (splits or {}) or usual_meaning(name) is not None


def split_meanings(own_names: Sequence[str], splits: Splits) -> dict[str, str | None]:
    """Which of our splits each of a set's own splits is: own name -> train, val or test; None = images are left out.

    own_names: the set's own split names, also repeated ones. The result is sorted by name.
    splits:    own name -> train, val or test, or null to leave those images out. It takes precedence over the usual
               names.

    A set with only one split is all test, whatever the split is called. In a set with train and val but no test, val
    becomes test, because it is the only split that its authors held out. See `tested_on_val`.

    Raises FcaError naming the splits that are neither mapped nor called by a usual name (a single one may have any
    name), those that are mapped but not in the set, or two usual names of one meaning.

    >>> split_meanings(["Training", "holdout", "extra"], {"holdout": "test", "extra": None})
    {'Training': 'train', 'extra': None, 'holdout': 'test'}
    >>> split_meanings(["train", "Val"], None)
    {'Val': 'test', 'train': 'train'}
    """
    meanings = _meanings_by_name(own_names, splits)
    kinds = set(meanings.values()) - {None}
    if len(kinds) == 1:
        return {name: None if kind is None else "test" for name, kind in meanings.items()}
    if kinds == {"train", "val"}:
        return {name: "test" if kind == "val" else kind for name, kind in meanings.items()}
    return meanings


def tested_on_val(own_names: Sequence[str], splits: Splits) -> list[str]:
    """The set's own names of validation splits that are used as the test split, because it has train but no test.

    >>> tested_on_val(["train", "Val"], None), tested_on_val(["train", "Val", "test"], None)
    (['Val'], [])
    """
    meaning_by_name = _meanings_by_name(own_names, splits)  # what each name means by itself: val stays val
    used_as = split_meanings(own_names, splits)  # which split each one becomes: val may become test
    if "train" not in used_as.values():
        return []
    return [name for name, split in used_as.items() if split == "test" and meaning_by_name[name] == "val"]


def _meanings_by_name(own_names: Sequence[str], splits: Splits) -> dict[str, str | None]:
    """Which split each of a set's own split names means: own name -> train, val or test; None = images are left out.

    A name means what `splits` maps it to, or else what it usually means. The single split of a set may have any other
    name, which means test, unless `splits` maps names. What a name means here does not depend on the other splits of
    the set: a validation split is val even if the set has no test split.

    own_names: the set's own split names, also repeated ones. The result is sorted by name.
    splits:    own name -> train, val or test, or null to leave those images out.

    Raises FcaError if `splits` maps a name to something else, for names that are neither mapped nor usual, for names
    that are mapped but not in the set, and for two usual names of one meaning.
    """
    mapped = dict(splits or {})
    names = sorted(set(own_names))
    wrong_meanings = sorted({str(meaning) for meaning in mapped.values() if meaning is not None} - set(SPLITS))
    if wrong_meanings:
        allowed = ", ".join((*SPLITS, "null (left out)"))
        raise FcaError("dataset.splits", choices_in_words(wrong_meanings), allowed, "map to one of these")

    # Names that are neither mapped nor usual get "test", which only a single split keeps: others are refused.
    meanings = {name: mapped[name] if name in mapped else usual_meaning(name) or "test" for name in names}
    _check_names(names, mapped, meanings)
    return meanings


def _check_names(names: Sequence[str], mapped: Mapping[str, str | None], meanings: Mapping[str, str | None]) -> None:
    """Raise FcaError for names of splits that have no clear meaning. The first kind of error that occurs is reported.

    names:    the names of the splits that the set has.
    mapped:   what the user maps names to: train, val, test, or None to leave images out.
    meanings: what each of `names` means; "test" for a name that is neither mapped nor usual.
    """
    names_in_set = ", ".join(visible(name) for name in names) or "none"
    allowed = f"one of train, val and test for each split found: {names_in_set}"

    # A single split may have any name, unless the user mapped names.
    unknown = [name for name in names if not known_split(name, mapped)]
    if unknown and (mapped or len(names) > 1):
        # The example maps the first name to test, unless the set has a test split.
        has_test = any(known_split(name, mapped) and meanings[name] == "test" for name in names)
        example = f"{unknown[0]}: {'null' if has_test else 'test'}"
        step = f"map each to train, val, test or null (left out), as in dataset.splits='{{{example}}}'"
        raise FcaError("dataset.splits", _in_words(unknown), allowed, step)

    # A name that is mapped but not in the set may be misspelt. If it is mapped to null, nothing is lost.
    step = "map each, as in dataset.splits='{its_name: test, another: null}'"
    absent = [name for name, meaning in mapped.items() if meaning is not None and name not in names]
    if absent:
        raise FcaError("dataset.splits", _in_words(absent), allowed, step)

    # Two names may share a meaning only if the user mapped them.
    unmapped = [name for name in names if name not in mapped]
    unmapped_meanings = [meanings[name] for name in unmapped]
    ambiguous = [name for name in unmapped if unmapped_meanings.count(meanings[name]) > 1]
    if ambiguous:
        allowed = f"one split for {meanings[ambiguous[0]]}, which these names mean alike; found: {names_in_set}"
        raise FcaError("dataset.splits", _in_words(ambiguous), allowed, step)


def _in_words(names: Sequence[str]) -> str:
    """Names of splits for a message."""
    return choices_in_words([visible(name) for name in names])
