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
    """Word -> its meaning as plain text, from the table in GLOSSARY.

    A line of that table may explain several words, separated by commas; each gets the meaning.

    >>> glossary()["full model"]
    'a model of all classes of a data set, scored on a few of them'
    """
    meanings = {}
    for line in GLOSSARY.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("| ") or len(cells) != 2:  # text around the table, or the line below its heading
            continue
        words = _plain(cells[0])
        meaning = _plain(cells[1])
        for word in words.split(", "):
            meanings[word] = meaning
    return meanings


def _plain(markdown: str) -> str:
    """Markdown as plain text: a link becomes its text, a link in brackets of its own ("([how](...))") disappears."""
    link_in_brackets = r" ?\(\[[^]]*\]\([^)]*\)\)"
    link = r"\[([^]]*)\]\([^)]*\)"
    without_links = re.sub(f"{link_in_brackets}|{link}", lambda match: match[1] or "", markdown)
    return without_links.replace("`", "")


def explained(text: str, explained_words: set[str]) -> list[tuple[str, str]]:
    """The words in a text that need an explanation and had none before, in their order, with their meanings.

    explained_words: the words that the page has explained so far; the words of this text are added to it.

    >>> words = set()
    >>> [word for word, _ in explained("Sub-models against full models", words)], explained("a sub-model", words)
    (['sub-model', 'full model'], [])
    """
    position_by_word: dict[str, int] = {}
    for word, pattern in PATTERNS.items():
        match = re.search(pattern, text)
        if match is not None and word not in explained_words:
            position_by_word[word] = match.start()

    words_in_order = sorted(position_by_word, key=position_by_word.__getitem__)
    explained_words.update(words_in_order)
    return [(word, glossary()[word]) for word in words_in_order]
