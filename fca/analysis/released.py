"""What the released similarity script would have logged for the subsets of a table, beside our scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from fca.analysis.points import SUBSET
from fca.analysis.select import Rows, records
from fca.analysis.similarity_points import embedded
from fca.nouns import Table
from fca.stats.correlation import correlation
from fca.stats.released import fca_released, released_draw
from fca.store import Store
from fca.subset import number_of_classes

SAME = ["dataset", "encoder", "split"]
LOGGED = ["s_alpha_released", "s_beta_released", "simss_released"]
RELEASED = [*SAME, *SUBSET, "step", "simss", "simss_pooled", "intra", "inter", *LOGGED, "difference", "run_id"]
AGREEMENT = [*SAME, "subsets", "difference", "difference_absolute", "difference_largest", "pooled_absolute", "r"]
SOURCE = "the code released with Few-Class Arena (arXiv:2411.01099); fca.stats.released lists its quirks"
ORDER = (
    "lists of images carried over from subset to subset: ncl by ncl (as asked for, else ascending), within it seed by "
    "seed; a subset that no seed drew is scored alone"
)


def released_tables(
    store: Store, rows: Rows, points: pd.DataFrame, ncl: Sequence[int | float] | None, parameters: Mapping[str, Any]
) -> list[Table]:
    """Tables released (one line a subset) and released_agreement (one line an encoder).

    points: of similarity_points; subsets without a score, and encoders that have no features, are left out.
    ncl:    the order of the loop, numbers or shares of the classes; what is asked for twice is gone through twice, as
            where a tenth of the classes are 4.
    """
    lines = [line for row in records(rows.embedded) for line in _lines(store, row, points, ncl)]
    frame = pd.DataFrame(lines, columns=RELEASED)
    frame["subset_seed"] = frame["subset_seed"].astype("Int64")
    agreement = [_agreement(part) for _, part in frame.groupby(SAME)]
    about = {
        "released": ("What would the released script log for each subset, quirk for quirk?", frame),
        "released_agreement": (
            "How far is the released SimSS from ours? (released minus ours on the same subsets: exact, so no interval)",
            pd.DataFrame(agreement, columns=AGREEMENT),
        ),
    }
    runs = tuple(sorted(set(frame["run_id"])))
    asked = {**parameters, "order": ORDER}
    return [Table(name, question, SOURCE, made, asked, runs) for name, (question, made) in about.items()]


def _lines(
    store: Store, row: Mapping[str, Any], points: pd.DataFrame, ncl: Sequence[int | float] | None
) -> Iterator[dict[str, Any]]:
    scored = points[(points["run_id"] == row["run_id"]) & points["simss"].notna()]
    found = embedded(store, row)
    if found.features is None:
        return
    step = 0
    asked = [number_of_classes(n, len(found.keys)) for n in ncl or sorted(set(scored["ncl"]))]
    for sequence in _sequences(scored, asked):
        drawn = [_as_drawn(line, len(found.keys)) for line in sequence]
        for line, logged in zip(sequence, fca_released(found.features, found.labels, drawn), strict=True):
            said = dict(zip(LOGGED, logged, strict=True))
            yield {**line, **said, "step": step, "difference": logged.simss - line["simss"]}
            step += 1


def _sequences(scored: pd.DataFrame, asked: Sequence[int]) -> Iterator[list[dict[str, Any]]]:
    """The subsets of each sampler in the order of the loop, then each that nothing drew by itself."""
    drawn = scored[scored["subset_seed"].notna()]
    for _, part in drawn.groupby("sampler"):
        yield [line for n in asked for line in records(part[part["ncl"] == n].sort_values("subset_seed"))]
    for line in records(scored[scored["subset_seed"].isna()]):
        yield [line]


def _as_drawn(line: Mapping[str, Any], num_classes: int) -> Sequence[int]:
    """S_beta depends on the order of the draw, which only the original's own sampler has; others: sorted."""
    if line["sampler"] == "fca" and line["ncl"] < num_classes:
        return released_draw(num_classes, int(line["ncl"]), int(line["subset_seed"]))
    return tuple(int(c) for c in line["classes"])


def _agreement(part: pd.DataFrame) -> dict[str, Any]:
    """pooled_absolute: against our SimSS pooled over images, as theirs is; the rest of their quirks."""
    known = part.dropna(subset="simss_released")
    apart = known["difference"].abs()
    return {
        **{name: part[name].iloc[0] for name in SAME},
        "subsets": len(known),
        "difference": known["difference"].mean(),
        "difference_absolute": apart.mean(),
        "difference_largest": apart.max(),
        "pooled_absolute": (known["simss_released"] - known["simss_pooled"]).abs().mean(),
        "r": correlation(known["simss"].to_numpy(), known["simss_released"].to_numpy()).r if len(known) else None,
    }
