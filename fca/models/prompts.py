"""What a class is called in a prompt."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from fca.nouns import FcaError

_WNID = re.compile(r"n\d{8}")


def display_names(keys: Sequence[str], given: Mapping[str, str]) -> tuple[str, ...]:
    """The name of every class key: the given one; WordNet's for a wnid; or the key with spaces for _ and -.

    WordNet's first word is taken, and its definition behind it where two of the classes share that word (ImageNet has
    two cranes). Source: timm's ImageNetInfo. Raises FcaError where two classes would still be called the same.

    >>> display_names(["n02012849", "n01440764", "polar_bear"], {"polar_bear": "ice bear"})
    ('crane', 'tench', 'ice bear')
    """
    names = [given.get(key) or _words(key) for key in keys]
    shared = _twice(names)
    names = [
        f"{name}, {_wordnet('definition')[key]}" if name.lower() in shared and key in _wordnet("definition") else name
        for key, name in zip(keys, names, strict=True)
    ]
    twice = _twice(names)
    if twice:
        called = [key for key, name in zip(keys, names, strict=True) if name.lower() in twice]
        allowed = f"different names in prompts; {', '.join(called)} share {', '.join(sorted(twice))}"
        raise FcaError("model.names", dict(given), allowed, "name them: '+model.names.KEY=NAME'")
    return tuple(names)


def _words(key: str) -> str:
    if _WNID.fullmatch(key) and key in _wordnet("lemma"):
        return _wordnet("lemma")[key].partition(",")[0]
    return re.sub(r"[_-]+", " ", key).strip()


def _twice(names: Sequence[str]) -> set[str]:
    return {name for name, count in Counter(name.lower() for name in names).items() if count > 1}


@cache
def _wordnet(kind: str) -> dict[str, str]:
    """Words or definitions by wnid, from timm's files and without importing timm."""
    spec = find_spec("timm")  # finds the package without running its __init__
    folder = Path(next(iter((spec and spec.submodule_search_locations) or [])))
    lines = (folder / "data" / "_info" / f"imagenet_synset_to_{kind}.txt").read_text().splitlines()
    return {key: text.strip() for key, _, text in (line.partition("\t") for line in lines)}
