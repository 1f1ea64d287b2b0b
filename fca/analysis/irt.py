"""How able are the subjects, how hard and telling are the images: item response theory over stored answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import pandas as pd

from fca.analysis import irt_drawn, irt_tables
from fca.analysis.fits import digest_of
from fca.analysis.irt_calibration import Asked, Calibrated, calibrated
from fca.nouns import Table
from fca.stats.intervals import RESAMPLES
from fca.store import Store

PAPER = "Sharma et al. (Do models see corruption as we see?, 2023)"
THEORY = "models of answers compared as in arXiv:2106.00840"
METHOD = {
    "ability": "95 %: Laplace, given the learned hyperparameters",
    "tau": f"Kendall's tau-b of ability with accuracy; 95 %: {RESAMPLES} bootstrap resamples of models, all snapshots "
    "of one together, without fitting again",
    "held_out": "10 % of the answers hidden; mean negative log likelihood a cell; baseline: additive logit of margins; "
    "fitted in the default way, whatever compat",
    "plane": f"{irt_drawn.SAMPLED} items a data set, drawn by seed",
    "severity": "the outer bins hold what lies beyond",
}
ABOUT = {
    "irt_abilities": (
        "How able is every subject, and how sure is that?",
        f"{PAPER}, section 2; {THEORY}",
    ),
    "irt_fits": (
        "Does ability order the subjects as accuracy does, and does the model predict answers that it did not see?",
        f"{PAPER}, table 2, with intervals; {THEORY}",
    ),
    "irt_choice": ("Which model predicts hidden answers best?", f"{PAPER} takes one for all; {THEORY}"),
    "irt_items": ("How hard and how telling is every item?", f"{PAPER}, eq. 3; {THEORY}"),
    "irt_plane": ("Are hard images the telling ones?", f"{PAPER}, figure 2; {THEORY}"),
    "irt_severity": ("What does a corruption change as it gets more severe?", f"{PAPER}, figure 1; {THEORY}"),
    "irt_curves": ("Does the fitted curve of an item follow what subjects did?", f"{PAPER}, section 2; {THEORY}"),
}


@dataclass(frozen=True)
class Irt:
    """`analysis=irt`; reads `predict` rows of full models, clean and under corruptions, and files of answers.

    query:       narrows the rows.    responses: files of answers, each a data set, or more subjects of a stored one.
    model:       1pl, 2pl, 3pl, 3pl-upper, 4pl, or auto: what predicts hidden answers best.
    calibration: joint, ability or separate; see fca.analysis.irt_calibration.
    trait:       what the latent variable of the subjects is called, e.g. "agreement with shape".
    seed:        of hidden answers, of sampled items, and of `compat`.    compat: seed001, fitted as the paper did.
    """

    query: str | None = None
    responses: list[str] = field(default_factory=list)
    model: str = "2pl"
    calibration: str = "joint"
    trait: str = "ability"
    seed: int = 0
    compat: str | None = None

    def __call__(self, store: Store) -> list[Table]:
        """Tables irt_abilities, irt_fits, irt_plane, irt_severity, irt_curves, irt_items (a bank), and irt_choice."""
        asked = Asked(self.model, self.calibration, self.compat, self.seed)
        runs: set[str] = set()
        told: dict[str, list[str]] = {"left_out": [], "answers": []}
        parts: dict[str, list[pd.DataFrame]] = {}
        for one in calibrated(store, self.query, self.responses, asked):  # one at a time: the answers are large
            runs |= set(one.gathered.runs)
            told["left_out"] += [f"{one.corruption}: {who}" for who in one.gathered.left_out]
            told["answers"].append(digest_of(one.gathered))  # files are named, but they can change
            for name, frame in self._frames(one):
                parts.setdefault(name, []).append(frame)
        frames = {name: pd.concat(found, ignore_index=True) for name, found in parts.items()}
        for name in ("irt_abilities", "irt_fits"):
            frames[name] = frames[name].astype({"severity": "Int64"})
        frames["irt_plane"] = irt_drawn.plane(frames["irt_items"], self.seed)
        frames["irt_severity"] = irt_drawn.severity_shares(frames["irt_items"])
        parameters: dict[str, Any] = {**asdict(self), **METHOD, **told}
        return [
            Table(name, *ABOUT[name], frames[name], parameters, tuple(sorted(runs))) for name in ABOUT if name in frames
        ]

    def _frames(self, one: Calibrated) -> Iterator[tuple[str, pd.DataFrame]]:
        """What one fit adds to each table."""
        yield "irt_abilities", irt_tables.abilities(one, self.trait)
        yield "irt_fits", pd.DataFrame([irt_tables.fit_line(one, self.trait, self.seed)], columns=irt_tables.FITS)
        yield "irt_items", irt_tables.items(one)
        if one.first:
            yield "irt_curves", irt_drawn.curves(one, self.trait)
            if self.model == "auto":
                yield "irt_choice", irt_tables.choice(one, self.seed)
