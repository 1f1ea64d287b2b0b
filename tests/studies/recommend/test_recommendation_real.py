"""Is the accuracy by which a linear probe is judged that of the probe that is delivered? On real photographs."""

import os
from pathlib import Path

import numpy as np
import probes
import pytest

from fca.store import Store

pytestmark = [pytest.mark.real, pytest.mark.slow]
DATA = Path(os.environ.get("FCA_REAL_DATA", ""))


@pytest.mark.skipif(not os.environ.get("FCA_REAL_DATA"), reason="FCA_REAL_DATA is not set")
@pytest.mark.parametrize(
    ("name", "ncl", "per_class", "limit"), [("clothing", 10, 15, 36), ("grocery", 20, 8, 20), ("cifar10", 10, 15, 60)]
)
def test_the_accuracy_that_judged_a_probe_is_within_its_interval_of_what_is_delivered(
    fca, tmp_path, name, ncl, per_class, limit
):
    """20 validation images; 30 draws of training images, of which 90 % intervals hold 21 with probability .998."""
    words = ["dataset=folder", f"dataset.root={DATA}/images/{name}.zip", f"limit={limit}", "logger=none"]
    words += ["model=mobilenetv1_050", f"model.weights={DATA}/weights/mobilenetv1_050.safetensors", "adaptation=probe"]
    assert fca(*words, "machine.accelerator=cpu", "machine.workers=1")[0] == 0
    store = Store(tmp_path / "outputs")
    [row] = store.rows("task == 'embed'").to_dict("records")
    features = store.array(row["run_id"], "features").astype(np.float64)
    labels = store.items(row["fingerprint"])["label"].cat.codes.to_numpy().astype(np.int64)

    lines = []
    for draw in range(30):
        rng = np.random.default_rng(draw)
        x, y, train, val, test = probes.real(draw, rng, features, labels, ncl, per_class)
        lines.append(probes.judged_and_delivered(probes.now, x, y, train, val, test, rng))
    assert sum(line["inside"] for line in lines) >= 21
    error = np.mean([line["judged"] - line["delivered"] for line in lines])
    assert abs(error) < 0.025  # a probe without a fifteenth, or an eighth, of each class knows it a little less
