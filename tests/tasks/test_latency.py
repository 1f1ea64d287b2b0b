"""Operations and memory of networks against counts by hand; rows of task=latency."""

import os
import subprocess
import sys
import time

import numpy as np
import torch
from torch import nn

from fca.geometry import ResizeCrop
from fca.stats.intervals import median_with_interval
from fca.store import results
from fca.training.speed import ProcessorTime, cost
from fca.types import Classifier

SIDE = 8


def classifier(*layers):
    return Classifier(
        nn.Sequential(*layers), ("a", "b"), ResizeCrop(SIDE, 1.0, "bilinear", False), lambda x: x, None, None
    )


def test_operations_and_weights_are_those_counted_by_hand():
    made = cost(classifier(nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.Flatten(), nn.Linear(4 * SIDE**2, 2)))
    assert made.flops == 2 * (SIDE**2 * 4 * 3 * 9 + 4 * SIDE**2 * 2)
    assert made.params == 4 * 3 * 9 + 4 * SIDE**2 * 2 + 2


def test_memory_is_of_the_weights_and_of_what_is_alive_at_once():
    square = SIDE**2 * 4  # bytes of one channel
    three = cost(classifier(*(nn.Conv2d(3 if not k else 16, 16, 1, bias=False) for k in range(3)), nn.Flatten()))
    weights = 4 * (3 * 16 + 2 * 16 * 16)
    # at most the input and the output of a convolution, with the pixels as floats; not the results of all three
    assert weights + 2 * 16 * square <= three.memory <= weights + (2 * 16 + 2 * 3) * square


def test_shared_weights_count_once():
    layer = nn.Conv2d(3, 3, 1, bias=False)
    assert cost(classifier(layer, layer)).memory - cost(classifier(layer)).memory < 4 * SIDE**2 * 3 * 2


def test_a_median_has_the_interval_of_the_binomial():
    rng = np.random.default_rng(0)
    inside = [
        low <= 1 <= high
        for _, low, high in (median_with_interval(rng.lognormal(size=15).tolist()) for _ in range(2000))
    ]
    assert 0.95 <= np.mean(inside) <= 0.985  # 96.5 % for 15 values


def test_the_share_of_other_processes_leaves_out_this_one():
    other = subprocess.Popen([sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE)
    other.stdout.readline()
    before = ProcessorTime.now()
    time.sleep(1)
    after = ProcessorTime.now()
    other.kill()
    other.communicate()
    assert before.share_of_others_until(after) > 0.5 / os.cpu_count()
    assert ProcessorTime(0, 0, 0).share_of_others_until(ProcessorTime(20, 10, 10)) == 0


def test_networks_are_measured_and_found_again(fca, tmp_path):
    words = ["task=latency", "subset.ncl=3", "task.rounds=6", "task.batch=4", "task.threads=1", "logger=none"]
    before = torch.get_num_threads()
    code, out, err = fca(*words, "model=test_vit")
    assert code == 0, err
    assert "ms an image" in out
    row = results(tmp_path / "outputs").iloc[0]
    assert (row["task"], row["threads"], row["batch"], row["ncl"]) == ("latency", 1, 4, 3)
    assert 0 < row["latency_ms_low"] <= row["latency_ms"] <= row["latency_ms_high"]
    assert torch.get_num_threads() == before
    assert fca(*words, "model=test_vit")[0] == 0
    assert len(results(tmp_path / "outputs")) == 1


def test_what_has_no_head_is_measured_without_one_and_its_operations_stay_unknown(fca, tmp_path):
    code, _, err = fca("task=latency", "model=hog", "task.rounds=6", "task.batch=2", "logger=none")
    assert code == 0, err
    row = results(tmp_path / "outputs").iloc[0]
    assert row["params"] == 0
    assert row["latency_ms"] > 0
    assert "gflops" not in row.dropna()
