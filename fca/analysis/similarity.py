"""How hard class subsets look: SimSS and its parts, by the definitions and as the released script has them."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from fca.analysis.released import released_tables
from fca.analysis.select import one_config, require, select
from fca.analysis.similarity_points import similarity_points
from fca.analysis.subsets import Grid, subsets_of
from fca.nouns import Table
from fca.store import Store


@dataclass(frozen=True)
class Similarity:
    """`analysis=similarity`; reads `embed` rows, and `train` rows for the subsets to score.

    query:       narrows the rows.
    ncl, seeds:  a grid of draws to score instead of the subsets of the stored sub-models; sampler: how it is drawn.
    split:       of the embedded images; test is what the paper scores, train what a practitioner has.
    """

    query: str | None = None
    ncl: list[int | float] | None = None
    seeds: list[int] | None = None
    sampler: str = "uniform"
    split: str = "test"

    def __call__(self, store: Store) -> list[Table]:
        """Tables similarity, released and released_agreement."""
        rows = select(store, self.query, self.split)
        command = "fca run task=embed model@encoder=hog"
        require(rows.embedded, f"embed rows of split {self.split}", rows.total, command)
        one_config(rows.embedded, "encoder")
        points = similarity_points(store, rows, subsets_of(rows, Grid(self.ncl, self.seeds, self.sampler)))
        return [
            Table(
                "similarity",
                "How alike are the images of each class subset, within classes and between? (higher simss = easier)",
                "Few-Class Arena (arXiv:2411.01099) eqs. 1 to 4 with sim = (cos + 1) / 2",
                points,
                asdict(self),
                tuple(sorted(set(points["run_id"]))),
            ),
            *released_tables(store, rows, points, self.ncl, asdict(self)),
        ]
