"""Which classes break under which corruption, and which stay as they are while it grows."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import pandas as pd

from fca.analysis.difficulty_segments import PAPER
from fca.analysis.responses import shifted_responses
from fca.analysis.robustness_tables import (
    MODES,
    named_classes,
    robustness_lines,
    severity_lines,
    shown_classes,
    shown_severities,
)
from fca.analysis.segment_items import METHOD, quartered
from fca.nouns import FcaError, Table
from fca.stats.intervals import RESAMPLES
from fca.store import Store

STATED = {
    **METHOD,
    "instability": "standard deviation over the severities above 0 of the share of the class's images in a segment, "
    "averaged over segments; mode=mean_b: standard deviation of the class's mean difficulty b",
    "robustness": "-instability; compat=seed001: +instability, as written there",
    "trend": "slope a severity step of the class's mean expected success (below 0: harder); mode=mean_b: of its mean "
    "difficulty b (above 0: harder)",
    "change": "of the same mean, from clean images to the mean over the severities above 0; a class that breaks at "
    "once and stays broken is steady, and only this tells it; direction: whether the interval of change leaves out 0",
    "intervals": f"95 %, {RESAMPLES} bootstrap resamples of the class's images; fit and cuts are held fixed, so they "
    "know nothing of other models; the instability's is corrected for what sampling adds to a standard deviation",
    "verdict_kept": "share of those resamples, all classes at once, that give the class the same verdict",
}
ABOUT = {  # name: question, source
    "class_robustness": (
        "How steady is each class while a corruption grows, and which way does it move? (rank 1 = most robust)",
        f"{PAPER}, section 3.2, with the sign of the score turned: a class that moves less is more robust",
    ),
    "class_robustness_shown": (
        "Which classes break under which corruption? (the most and the least robust)",
        f"{PAPER}, section 3.2, with the sign of the score turned",
    ),
    "robust_classes": ("Which classes are susceptible to a corruption, and which robust?", f"{PAPER}, Table 1"),
    "class_severity": (
        "How many images of each class are in which segment at every severity? (severity 0 = clean)",
        f"{PAPER}, Figures 5 and 8 to 10",
    ),
    "class_severity_difficulty": (
        "Do easy images stay easy? (the easy and the hard segment)",
        f"{PAPER}, Figures 5 and 10",
    ),
    "class_severity_discrimination": (
        "Do images still tell models apart? (the least and the most discriminating segment)",
        f"{PAPER}, Figures 8 and 9",
    ),
}


@dataclass(frozen=True)
class ClassRobustness:
    """`analysis=class_robustness`; reads full models' answers on clean and corrupted test images.

    query:   narrows the rows.    model: of item responses (1pl, 2pl, 3pl, 3pl-upper, 4pl), or auto.
    compat:  seed001 = segments by raw difficulty b, cut at each severity; sign of the score and fit as in that paper.
    mode:    count = by the shares of a class's images in the segments; mean_b = by its mean difficulty.
    seed:    of the bootstrap, of the order of equal images, and of the fit under compat.
    """

    query: str | None = None
    model: str = "2pl"
    compat: str | None = None
    mode: str = "count"
    seed: int = 0

    def __call__(self, store: Store) -> list[Table]:
        """Tables class_robustness, robust_classes and class_severity, and the lines of them that are drawn.

        Raises FcaError for an unknown mode, and where no corruption has two severities.
        """
        if self.mode not in MODES:
            raise FcaError("analysis.mode", self.mode, " or ".join(MODES), "change it")
        robust, severe, left_out = [], [], []
        runs: set[str] = set()
        for corruption, gathered in shifted_responses(store, self.query):
            if len(set(gathered.responses.items["severity"]) - {0}) < 2:
                left_out.append(f"{gathered.dataset} {corruption}: one severity")
                continue
            found = quartered(gathered, self.model, self.compat, self.seed)
            robust.append(robustness_lines(gathered, found, corruption, self.mode, self.compat, self.seed))
            severe.append(severity_lines(gathered, found, corruption))
            runs.update(gathered.runs)
            left_out += gathered.left_out
        if not robust:
            command = "fca run -m task=predict shift=corruption/all"
            seen = f"none among the {len(store.rows())} stored rows" + "".join(f"; {why}" for why in left_out)
            raise FcaError("corruptions with two severities", seen, "1 or more", f"make some with: {command}")
        frames = _frames(pd.concat(robust, ignore_index=True), pd.concat(severe, ignore_index=True))
        parameters = {**asdict(self), **STATED, "left_out": "; ".join(dict.fromkeys(left_out)) or None}
        return [Table(name, *ABOUT[name], frames[name], parameters, tuple(sorted(runs))) for name in ABOUT]


def _frames(classes: pd.DataFrame, severities: pd.DataFrame) -> dict[str, pd.DataFrame]:
    return {
        "class_robustness": classes,
        "class_robustness_shown": shown_classes(classes),
        "robust_classes": named_classes(classes),
        "class_severity": severities,
        "class_severity_difficulty": shown_severities(severities, classes, "difficulty"),
        "class_severity_discrimination": shown_severities(severities, classes, "discrimination"),
    }
