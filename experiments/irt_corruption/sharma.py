"""What Sharma et al. (Do models see corruption as we see?, 2023) report, from paper.yaml."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path

import yaml

PAPER = "Sharma et al. (Do models see corruption as we see?, 2023)"
TEXTS = yaml.safe_load((Path(__file__).parent / "paper.yaml").read_text())
DATASET, MODEL, RULES = TEXTS["dataset"], TEXTS["model"], TEXTS["rules"]
SEGMENTS, SUBJECTS, IMAGES, ERRORS = (TEXTS[name] for name in ("segments", "subjects", "images", "errors"))
TABLE1 = {kind: tuple(map(tuple, pairs)) for kind, pairs in TEXTS["table1"].items()}
TABLE2, TABLE3, TABLE3_KIND = TEXTS["table2"], TEXTS["table3"], TEXTS["table3_kind"]
FIGURE4 = TEXTS["figure4"]
Move = namedtuple("Move", ("where", "kind", "parameter", "segment", "label", "paper"))
MOVES = [Move(*move) for move in TEXTS["moves"]]
CONTRADICTIONS = TEXTS["contradictions"]


def run_command(dataset: str, kind: str | None = None, models: tuple[str, ...] = ()) -> str:
    """Makes the paper's subjects (or those of some models) and their responses, clean and under one kind or all."""
    words = [f"dataset={dataset}"]
    words += [f"model={','.join(models)}"] if models else []
    words += [f"shift=corruption/{kind}"] if kind else []
    return " ".join(["fca run -m experiment=irt_corruption", *words])


def model_of(subject: str) -> str:
    """What runs of a subject of Table 3 are called.

    >>> model_of("R101Best"), model_of("Mnetv3_E1"), model_of("AlexNet")
    ('resnet101', 'mobilenetv3_large', 'alexnet')
    """
    return next(model for name, model in TEXTS["models"].items() if subject.startswith(name))
