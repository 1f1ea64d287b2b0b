"""CSV, TensorBoard and MLflow get configuration, curves and results of a training, read by their own readers."""

import pandas as pd
import pytest
import yaml

from fca.report.tracking import loggers
from fca.report.tracking.loggers import LightningTracker
from fca.types import FcaError
from tests.support.tracked import begin, done, prediction, training


@pytest.fixture
def followed(tmp_path):
    def follow(kind):
        tracker, run, failed = LightningTracker(kind, str(tmp_path)), training(0), training(1)
        for one in (run, failed):
            begin(tmp_path, one)
            curves = tracker.start(one)
            for step in range(3):
                curves.log_metrics({"train/loss": 1 / (step + 1), "epoch": step}, step=step)
        tracker.finish(done(tmp_path, run))
        tracker.finish(done(tmp_path, prediction(run), top1_open=0.5))
        tracker.close()
        return tmp_path / kind, run.run_id

    return follow


def test_csv(followed):
    folder, run_id = followed("csv")
    table = pd.read_csv(folder / run_id / "version_0" / "metrics.csv")
    assert table["train/loss"].dropna().tolist() == pytest.approx([1, 1 / 2, 1 / 3])
    assert table["result/top1"].dropna().tolist() == [0.75]
    typed = yaml.safe_load((folder / run_id / "version_0" / "hparams.yaml").read_text())
    assert (typed["subset.ncl"], typed["recipe.lr"], typed["effective.recipe.lr"]) == (2, 0.1, 0.025)


@pytest.mark.slow
def test_tensorboard(followed):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    folder, run_id = followed("tensorboard")
    read = events.EventAccumulator(str(folder / run_id))
    read.Reload()
    assert [event.value for event in read.Scalars("train/loss")] == pytest.approx([1, 1 / 2, 1 / 3])
    assert read.Scalars("result/top1")[0].value == 0.75


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # MLflow's own
def test_mlflow(followed):
    for module in ("mlflow", "sqlalchemy", "alembic"):
        pytest.importorskip(module)
    from mlflow.tracking import MlflowClient

    folder, run_id = followed("mlflow")
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    place = client.get_experiment_by_name("fca").experiment_id
    runs = {run.data.tags["run_id"]: run for run in client.search_runs([place])}
    assert set(runs) == {run_id, training(1).run_id}
    run = runs[run_id]
    assert (run.data.params["subset.ncl"], run.data.metrics["result/top1"]) == ("2", 0.75)
    assert (run.info.status, runs[training(1).run_id].info.status) == ("FINISHED", "FAILED")


def test_a_logger_whose_package_is_missing_is_refused_with_the_command_that_brings_it(monkeypatch, tmp_path):
    monkeypatch.setattr(loggers, "find_spec", lambda _: None)
    for kind, command in (("tensorboard", "pip install tensorboard"), ("mlflow", "pip install mlflow")):
        with pytest.raises(FcaError, match=f"logger = {kind}; .*{command}"):
            LightningTracker(kind, str(tmp_path))
    LightningTracker("csv", str(tmp_path))


def test_a_logger_that_fails_stops_no_training(monkeypatch, tmp_path, caplog):
    tracker = LightningTracker("csv", str(tmp_path))
    monkeypatch.setattr(LightningTracker, "_logger", lambda *_: 1 / 0)
    assert tracker.start(training(0)) is False
    tracker.finish(done(tmp_path, training(0)))
    tracker.fail(training(0))
    tracker.close()
    assert "is not whole in csv: division by zero" in caplog.text
