"""Jobs that are done ahead on all cores."""

import os

import pytest

from fca.cli.jobs import Jobs
from fca.store import State
from fca.studies.recommend.ahead import do_ahead


@pytest.mark.slow
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core does everything in this process")
def test_jobs_are_done_ahead_on_all_cores_and_what_fails_there_is_left(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["dataset=digits", "model=test_resnet", "limit=8", "recipe.epochs=1", "recipe.min_steps=0", "logger=none"]
    jobs = Jobs([*words, "subset.classes=['0','1']", f"outputs={tmp_path / 'store'}"])
    several = [{"seed": seed} for seed in range(3)]
    several.append({"seed": 3, "trainer.profiler": "pytorch", "recipe.lr": 1e30})  # which diverges
    do_ahead(jobs, several, "training")
    states = [[jobs.job(keys).context.store.state(run.run_id) for run in jobs.job(keys).plan] for keys in several]
    assert states[:3] == [[State.DONE, State.DONE]] * 3
    assert states[3][1] is not State.DONE
