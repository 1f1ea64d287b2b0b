"""Words that a reader of a page cannot know, explained where they stand first, by the glossary of the docs."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

GLOSSARY = Path(__file__).parent / "web" / "glossary.md"  # the site shows it as docs/glossary.md
# The words of the glossary that a page explains -> how text has them. Others are plain, or stand in settings alone.
PATTERNS = {
    "SimSS": r"\bSimSS\b",
    "hog": r"\bhog\b",
    "ncl": r"\bncl\b",
    "sub-model": r"\b[Ss]ub-models?\b",
    "full model": r"\b[Ff]ull models?\b|\bmodels of all classes\b",
    "masked": r"\bmasked\b",
    "DCN": r"\bDCN\b",
    "LogME": r"\bLogME\b",
    "silhouette": r"\bsilhouette\b",
    "Kendall's tau": r"\b(Kendall's )?tau\b",
    "Spearman's rho": r"\bSpearman's rho\b",
    "probe": r"\bprobe\b",
    "RFS": r"\bRFS\b|\brelative foreground sensitivity\b",
    "ability": r"\b[Aa]bility\b",
    "difficulty": r"\b[Dd]ifficulty\b",
    "discrimination": r"\b[Dd]iscrimination\b",
    "feasibility": r"\b[Ff]easibility\b",
    "hierarchical score": r"\b[Hh]ierarchical score\b",
}


@cache
def glossary() -> dict[str, str]:
    """Word -> its meaning as plain text; of a line with several words each has it.

    >>> glossary()["full model"]
    'a model of all classes of a data set, scored on a few of them'
    """
    meanings = {}
    for line in GLOSSARY.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("| ") or len(cells) != 2:
            continue
        words, meaning = (_plain(cell) for cell in cells)
        meanings.update(dict.fromkeys(words.split(", "), meaning))
    return meanings


def _plain(markdown: str) -> str:
    without_links = re.sub(r" ?\(\[[^]]*\]\([^)]*\)\)|\[([^]]*)\]\([^)]*\)", lambda link: link[1] or "", markdown)
    return without_links.replace("`", "")


def explained(text: str, before: set[str]) -> list[tuple[str, str]]:
    """The words in a text that need an explanation and had none before, in their order, with their meanings.

    before: words that the page has explained; these are added.

    >>> seen = set()
    >>> [word for word, _ in explained("Sub-models against full models", seen)], explained("a sub-model", seen)
    (['sub-model', 'full model'], [])
    """
    places = {word: re.search(pattern, text) for word, pattern in PATTERNS.items()}
    first_places = {word: place.start() for word, place in places.items() if place is not None}
    lines = []
    for word in sorted(first_places, key=lambda word: first_places[word]):
        if word in before:
            continue
        before.add(word)
        lines.append((word, glossary()[word]))
    return lines
