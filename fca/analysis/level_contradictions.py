"""Images that contradict their level: easy ones that no model answers, hard ones that all answer with confidence."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fca.analysis.gallery import ACROSS
from fca.analysis.gallery_pictures import Pictures, pictures
from fca.analysis.levelled import COLUMNS, Levelled
from fca.store import Store

KINDS = ("easy, missed by all", "hard, right and confident")
ALL = ["dataset", "kind", "rank", *COLUMNS, "top1", "confidence", "wanted", "models"]
SHOWN = ["dataset", "kind", "rank", "thumbnail", *ALL[3:], "of", "row", "column"]


def contradictions(source: Levelled) -> pd.DataFrame:
    """A line an image that contradicts its level, the most confident of each kind first.

    Easy: no model is right. Hard: all models are right, with a mean confidence of at least `wanted`, the median over
    the easy images of the same attribute.    top1, confidence: means over models.
    """
    about = source.items.assign(top1=source.correct.mean(axis=0), confidence=source.confidence.mean(axis=0))
    easy = about[about["level"] == "easy"]
    about["wanted"] = about["attribute"].map(easy.groupby("attribute")["confidence"].median()).astype(float)
    about = about.assign(dataset=source.dataset, models=len(source.models))
    missed = (about["level"] == "easy") & (about["top1"] == 0)
    sure = (about["level"] == "hard") & (about["top1"] == 1) & (about["confidence"] >= about["wanted"])
    frames = []
    for kind, chosen in zip(KINDS, (missed, sure), strict=True):
        part = about[chosen].sort_values(["confidence", "image_id"], ascending=[False, True])
        frames.append(part.assign(kind=kind, rank=np.arange(1, len(part) + 1)))
    return pd.concat(frames, ignore_index=True)[ALL]


def with_pictures(store: Store, found: pd.DataFrame, shown: int, fingerprint: str) -> tuple[pd.DataFrame, Pictures]:
    """The first `shown` of each kind with thumbnail, how many there are (`of`), and a place in a grid."""
    first = found[found["rank"] <= shown].reset_index(drop=True)
    drawn = pictures(store, first["image_id"].tolist(), fingerprint)
    row, column = np.divmod(first["rank"] - 1, ACROSS)
    of = first["kind"].map(found["kind"].value_counts()).astype("int64")
    thumbnail = pd.Series(drawn.thumbnails, dtype=object)
    return first.assign(row=row, column=column, of=of, thumbnail=thumbnail)[SHOWN], drawn
