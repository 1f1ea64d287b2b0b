"""What a model answered so far, in an append-only file: a test that was killed asks nothing twice."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Integer

NAME = "journal.jsonl"


class Answers(NamedTuple):
    """The logit that a model chose for each of some images, and the probability it gave the right one."""

    pred: Int[np.ndarray, " images"]
    p_true: Float[np.ndarray, " images"]


@dataclass
class Journal:
    """Answers to the images of a pool, by position; a line of the file is what was forwarded together.

    path: of the file: JSON lines of `round`, `image_id`, `pred`, `p_true`, `seconds`.    image_id: of the pool.
    """

    path: Path
    image_id: Sequence[str]

    def __post_init__(self) -> None:
        """Read what is there; a last line that was cut off by the end of its process is removed."""
        self.pred = np.full(len(self.image_id), -1, dtype=np.int32)
        self.p_true = np.full(len(self.image_id), np.nan, dtype=np.float32)
        self.seconds = 0.0
        if not self.path.exists():
            return
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            os.truncate(self.path, len(whole))
        position = {image_id: place for place, image_id in enumerate(self.image_id)}
        for line in whole.decode().splitlines():
            said = json.loads(line)
            places = np.array([position[image_id] for image_id in said["image_id"]], dtype=np.int64)
            self._take(places, Answers(np.array(said["pred"]), np.array(said["p_true"])), said["seconds"])

    @property
    def answered(self) -> Bool[np.ndarray, " items"]:
        """Which images the model has answered."""
        return np.asarray(self.pred >= 0)

    def add(self, number: int, positions: Integer[np.ndarray, " images"], said: Answers, seconds: float) -> None:
        """Answers of this round to the images at these positions, on the disk before this returns."""
        line = {
            "round": number,
            "image_id": [self.image_id[place] for place in positions.tolist()],
            "pred": said.pred.tolist(),
            "p_true": said.p_true.tolist(),
            "seconds": seconds,
        }
        with self.path.open("ab") as file:
            file.write(json.dumps(line, allow_nan=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._take(positions, said, seconds)

    def _take(self, positions: Integer[np.ndarray, " images"], said: Answers, seconds: float) -> None:
        self.pred[positions], self.p_true[positions] = said.pred, said.p_true
        self.seconds += seconds
