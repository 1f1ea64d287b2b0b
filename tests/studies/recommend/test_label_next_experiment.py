"""experiments/recommend/label_next.py, shrunk: three ways to choose what to label, on invented features."""

import label_next
import numpy as np
import pytest

from fca.stats.features import fit_probe
from tests.studies.recommend.support.features_of_data import features
from tests.support.clouds import clouds


def start(n=30, pool=60, seed=0):
    values, labels = clouds(n + pool, 5, spread=2.0, seed=seed)
    probe = fit_probe(values[:n], labels[:n])
    return label_next.Start(values[:n], labels[:n], values[n:], probe)


def test_the_variance_left_is_that_of_a_regression_with_one_more_image():
    known = start()
    spread = label_next.spread_of(known)
    more = np.concatenate([known.features, known.pool[7:8]])
    centre = known.features.mean(axis=0)
    own, pool = more - centre, known.pool - centre
    inverse = np.linalg.inv(own @ own.T + spread.noise * np.eye(len(own)))
    expected = pool @ pool.T - (pool @ own.T) @ inverse @ (own @ pool.T)
    after = spread.without(7).covariance
    np.testing.assert_allclose(after, expected, atol=1e-9 * np.abs(expected).max())
    assert spread.gain()[7] == pytest.approx(np.trace(spread.covariance) - np.trace(expected))


@pytest.mark.parametrize("way", label_next.WAYS)
def test_each_way_chooses_different_images_of_the_pool(way, monkeypatch):
    monkeypatch.setattr(label_next, "CHOSEN", 10)
    chosen = label_next.WAYS[way](start(), np.random.default_rng(0))
    assert len(set(chosen.tolist())) == 10
    assert set(chosen.tolist()) <= set(range(60))


@pytest.mark.slow
def test_every_way_is_compared_with_random_choice(tmp_path, monkeypatch, capsys):
    for seed, name in enumerate(("one", "other")):
        features(tmp_path / "features" / name, seed)
    monkeypatch.setattr(label_next, "ENCODER", "a_32_fp32_whole")
    for name, value in {"NCLS": (2, 3), "LABELLED": (5,), "SEEDS": 1, "CHOSEN": 5}.items():
        monkeypatch.setattr(label_next, name, value)
    label_next.main(tmp_path)
    printed = capsys.readouterr().out
    assert "all: 8 jobs" in printed
    assert all(f"\n{way}" in printed for way in label_next.WAYS)
