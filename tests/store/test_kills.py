"""Three of the kills of tests/support/kill_trial.py, of each kind."""

import pytest

from tests.support.kill_trial import trial


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launcher", "target"), [("basic", "parent"), ("basic", "worker"), ("joblib", "parent"), ("joblib", "worker")]
)
def test_kills_at_random_moments_lose_repeat_tear_and_leave_nothing(launcher, target, tmp_path):
    found = trial(tmp_path, kills=3, launcher=launcher, target=target, seconds=15)
    assert not found.wrong
    assert (found.kills, found.sweeps > 0) == (3, True)
