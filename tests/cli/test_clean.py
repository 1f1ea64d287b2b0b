"""`fca clean` and `machine.keep_weights`: what can be made again goes when it is asked for, and no result ever."""

import json
import os
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fca.cli import clean, main
from fca.cli.configure import load_data
from fca.cli.weights import Weights
from fca.data.pixels import open_pixels
from fca.geometry import ResizeCrop
from fca.models.stored import StoredRun
from fca.store import State, Store, claims, results
from fca.store.files import DamagedFile
from fca.types import FcaError, Run
from tests.conftest import SMALL

IDS = ("00000000000a", "00000000000b")
WEIGHTS = ("best.safetensors", "snapshot-0.50.safetensors")


@pytest.fixture(scope="module")
def pixels(tmp_path_factory):
    """A cache of decoded images, to copy."""
    cache = tmp_path_factory.mktemp("pixels") / "cache"
    open_pixels(load_data("digits"), ResizeCrop(2), cache)
    return cache


@pytest.fixture
def store(tmp_path, pixels):
    """Two trained networks, a solved layer, and everything that `fca clean` knows."""
    store = Store(tmp_path / "outputs")
    for at, run_id in enumerate((*IDS, "00000000000c")):
        folder = store.folder(run_id)
        token = claims.acquire(folder)
        for name in (*WEIGHTS, "model.json", "fitted.json", "last.ckpt", "config.yaml"):
            (folder / name).write_bytes(b"{}" * 500)
        if at == 2:
            (folder / "fitted.json").unlink()  # of a probe: no training of a network
        row = {"run_id": run_id, "task": "train", "train_s": 100.0 + at, "command": f"fca run seed={at}"}
        store.write(row, {"pred": np.arange(3)}, token)
        claims.release(folder, token)
    cache, hydra = store.outputs / "cache", store.outputs / ".hydra" / "2026-01-01"
    shutil.copytree(pixels, cache)
    for folder in (hydra, store.outputs / "tables", store.outputs / "items"):
        folder.mkdir(parents=True)
    (hydra / "multirun.yaml").write_text("x")
    (store.outputs / "tables" / "t.csv").write_text("a,b")
    return store


def files(store):
    return {str(path.relative_to(store.outputs)) for path in store.outputs.rglob("*") if path.is_file()}


def cleaned(store, capsys, *words):
    before = files(store)
    assert clean.main(["--outputs", str(store.outputs), *words]) == 0
    return before - files(store), capsys.readouterr().out


def test_without_yes_nothing_goes_and_every_kind_is_shown_with_its_cost(store, capsys):
    gone, out = cleaned(store, capsys)
    assert not gone
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert re.search(r"checkpoints +3 +3.0 kB  ", lines["checkpoints"])
    assert re.search(r"weights +2 +2.0 kB  3.4 min of training ", lines["weights"])  # 100 s + 101 s, and no layer
    assert re.search(r"snapshots +2 +2.0 kB  3.4 min of training ", lines["snapshots"])
    assert re.search(r"cache +\d+ +[\d.]+ kB  decoding 1,797 images ", lines["cache"])
    assert "nothing was removed" in out


def test_without_yes_it_prints_what_yes_removes_and_apart_what_stays(store, capsys):
    planned = cleaned(store, capsys)[1]
    would_go, _, stays = planned.partition("would go; nothing was removed")
    assert {line.split()[0] for line in stays.splitlines()[2:] if line} >= {"weights", "snapshots", "cache"}
    gone = cleaned(store, capsys, "--yes")[1]
    assert gone.splitlines()[:-1] == would_go.splitlines()[:-1], "the same lines"
    assert gone.splitlines()[-1].removeprefix("removed ") == would_go.splitlines()[-1].strip()


def test_filters_choose_the_runs_that_are_cleaned(store, capsys):
    gone, _ = cleaned(store, capsys, "--weights", "--yes", f"run_id={IDS[0]}")
    assert gone == {f"runs/{IDS[0]}/best.safetensors"}


def test_a_query_chooses_the_runs_that_are_cleaned_and_a_value_of_no_run_is_named(store, capsys):
    gone, _ = cleaned(store, capsys, "--weights", "--yes", f"query=run_id == '{IDS[1]}'")
    assert gone == {f"runs/{IDS[1]}/best.safetensors"}
    assert clean.main(["--outputs", str(store.outputs), "--snapshots", "--yes", "run_id=x"]) == 0
    captured = capsys.readouterr()
    assert "note: no run has run_id=x; run_id is 00000000000a, " in captured.err
    assert captured.out.endswith("removed 0 B\n")


def test_yes_alone_removes_only_what_nobody_misses(store, capsys):
    gone, out = cleaned(store, capsys, "--yes")
    assert gone == {f"runs/{run_id}/last.ckpt" for run_id in (*IDS, "00000000000c")} | {
        ".hydra/2026-01-01/multirun.yaml"
    }
    assert out.endswith("removed 3.0 kB\n")


def test_weights_of_a_training_that_diverged_are_named_and_go_with_what_nobody_misses(store, capsys):
    token = claims.acquire(store.folder(IDS[0]))
    row = {"run_id": IDS[0], "task": "train", "train_s": 100.0, "command": "fca run seed=0", "flag": "diverged"}
    store.write(row, {"pred": np.arange(3)}, token)
    claims.release(store.folder(IDS[0]), token)
    _, out = cleaned(store, capsys)
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert re.search(r"diverged +2 +2.0 kB .*weights of trainings that diverged", lines["diverged"])
    assert re.search(r"weights +1 ", lines["weights"])
    gone, _ = cleaned(store, capsys, "--yes")
    assert {f"runs/{IDS[0]}/{name}" for name in WEIGHTS} < gone
    assert not any(IDS[1] in name and name.endswith("safetensors") for name in gone)
    assert store.state(IDS[0]) is State.DONE


def test_a_folder_that_may_not_be_removed_is_named_whole(store, monkeypatch, capsys):
    def refuse(path, *_):
        raise OSError(30, "Read-only file system", "multirun.yaml")  # as shutil.rmtree does

    monkeypatch.setattr(clean, "remove", refuse)
    assert clean.main(["--outputs", str(store.outputs), "--hydra", "--yes"]) == 2
    assert f"(Read-only file system: {store.outputs}/.hydra/2026-01-01)" in capsys.readouterr().err


def test_weights_that_were_removed_leave_runs_that_are_done_and_say_how_to_get_them_back(store, capsys):
    gone, _ = cleaned(store, capsys, "--weights", "--yes")
    assert gone == {f"runs/{run_id}/best.safetensors" for run_id in IDS}
    assert {store.state(run_id) for run_id in store.run_ids()} == {State.DONE}
    assert not store.damaged()
    gone, _ = cleaned(store, capsys, "--snapshots", "--yes")
    assert gone == {f"runs/{run_id}/{WEIGHTS[1]}" for run_id in IDS}
    assert {store.state(run_id) for run_id in store.run_ids()} == {State.DONE}
    assert json.loads((store.folder(IDS[0]) / "removed.json").read_text())["files"] == list(WEIGHTS)


def test_a_record_of_removed_weights_excuses_no_other_file(store):
    folder = store.folder(IDS[0])
    store.remove_weights(IDS[0], [folder / WEIGHTS[0]], "a test")
    record = json.loads((folder / "removed.json").read_text())
    (folder / "pred.npy").unlink()
    (folder / "removed.json").write_text(json.dumps({**record, "files": [*record["files"], "pred.npy"]}))
    assert store.state(IDS[0]) is State.DAMAGED
    with pytest.raises(DamagedFile, match=r"pred\.npy is missing"):
        raise store.problem(IDS[0])


def test_killed_between_record_and_removal_the_run_is_whole_and_the_next_clean_ends_it(store, capsys, monkeypatch):
    def killed(path):
        raise KeyboardInterrupt

    monkeypatch.setattr("fca.store.store.remove", killed)
    with pytest.raises(KeyboardInterrupt):
        store.remove_weights(IDS[0], store.weights(IDS[0]), "a test")
    monkeypatch.undo()
    assert store.state(IDS[0]) is State.DONE
    (store.folder(IDS[0]) / WEIGHTS[0]).write_bytes(b"other")
    assert store.state(IDS[0]) is State.DAMAGED, "what is there is compared all the same"
    (store.folder(IDS[0]) / WEIGHTS[0]).write_bytes(b"{}" * 500)
    gone, _ = cleaned(store, capsys, "--weights", "--snapshots", "--yes")
    assert {f"runs/{IDS[0]}/{name}" for name in WEIGHTS} <= gone
    assert store.state(IDS[0]) is State.DONE


def test_while_a_run_or_a_sweep_is_at_work_its_files_and_all_weights_stay(store, capsys):
    folder = store.folder("00000000000d")
    token = claims.acquire(folder)
    (folder / "last.ckpt").write_text("x")
    gone, out = cleaned(store, capsys, "--yes", *(f"--{kind}" for kind in clean.KINDS))
    assert gone == {f"runs/{run_id}/last.ckpt" for run_id in (*IDS, "00000000000c")}
    assert "1 run or sweep is at work here: weights, snapshots, diverged, cache, hydra stay" in out
    claims.release(folder, token)
    with claims.announced(store.outputs, {"00000000000e": None}):
        assert not cleaned(store, capsys, "--yes", "--weights", "--cache")[0]
    assert (folder / "last.ckpt").exists(), "a run that is not done goes on from it"


def test_what_a_killed_process_left_goes(store, capsys):
    folder = store.folder("00000000000d")
    claims.acquire(folder)
    path = folder / "claim.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "process_started": 1.0}))
    (folder / "progress.json").write_text("{}")
    part = store.outputs / "cache" / f".f-224.npy.{2**22 + 1}@{os.uname().nodename}.0123456789ab.part"
    part.write_text("half")
    (folder / "journal.jsonl").write_text("{}\n")
    gone, _ = cleaned(store, capsys, "--yes", "--stale")
    assert gone == {f"runs/{folder.name}/{name}" for name in ("claim.json", "progress.json")} | {f"cache/{part.name}"}


def test_no_link_is_followed(store, capsys, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "00000000000f").mkdir(parents=True)
    (elsewhere / "precious.npy").write_text("x")
    row = json.loads((store.folder(IDS[0]) / "row.json").read_text())
    (elsewhere / "00000000000f" / "last.ckpt").write_text(json.dumps(row))
    (store.outputs / "runs" / "00000000000f").symlink_to(elsewhere / "00000000000f")
    (store.outputs / "cache" / "linked").symlink_to(elsewhere)
    (store.outputs / ".hydra" / "linked").symlink_to(elsewhere)
    (store.folder(IDS[1]) / "last.ckpt").unlink()
    (store.folder(IDS[1]) / "last.ckpt").symlink_to(elsewhere / "precious.npy")
    cleaned(store, capsys, "--yes", *(f"--{kind}" for kind in clean.KINDS))
    assert (elsewhere / "precious.npy").read_text() == "x"
    assert (elsewhere / "00000000000f" / "last.ckpt").exists()


def test_results_and_what_they_need_never_go(store, capsys):
    gone, _ = cleaned(store, capsys, "--yes", *(f"--{kind}" for kind in clean.KINDS))
    assert gone
    kept = {f"runs/{run_id}/{name}" for run_id in IDS for name in ("row.json", "pred.npy", "model.json", "config.yaml")}
    assert kept | {"tables/t.csv", "runs/00000000000c/best.safetensors"} <= files(store)
    assert cleaned(store, capsys, "--yes", *(f"--{kind}" for kind in clean.KINDS))[0] == set()


def job(store, keep, *plan, model=None):
    context = SimpleNamespace(store=store, machine=SimpleNamespace(keep_weights=keep), model=model, encoder=None)
    return SimpleNamespace(context=context, plan=plan)


class Known(Run):
    """A run whose id is given."""

    run_id = property(lambda self: self.identity["id"])


@pytest.mark.parametrize(("keep", "left"), [("best", WEIGHTS[:1]), ("none", ())])
def test_weights_stay_until_every_run_of_the_sweep_that_needs_them_is_done(store, keep, left):
    train = Known("train", {"id": IDS[0]})
    own, other = (Known("predict", {"id": run_id}, parent=IDS[0]) for run_id in ("0000000000a1", "0000000000a2"))
    later = Known("saliency", {"id": "0000000000a3"})  # of another point of the grid, with model=run
    stored = StoredRun(str(store.outputs), IDS[0], "best")
    points = job(store, keep, train, own), job(store, keep, train, other), job(store, keep, later, model=stored)
    weights = Weights(iter(points))
    for run in (own, other, later):
        weights.remove_unneeded()
        assert len(store.weights(IDS[0])) == 2
        token = claims.acquire(store.folder(run.run_id))
        if run is other:
            store.fail(run.run_id, {"error": "x"})
            weights.remove_unneeded()
            assert len(store.weights(IDS[0])) == 2, "a failed run may be run again"
        store.write({"run_id": run.run_id, "task": run.task}, {}, token)
    weights.remove_unneeded()
    assert [path.name for path in store.weights(IDS[0])] == list(left)
    assert len(store.weights(IDS[1])) == 2, "of no training of this sweep"
    assert store.state(IDS[0]) is State.DONE


def test_by_default_snapshots_stay(store):
    weights = Weights(iter([job(store, "snapshots", Known("train", {"id": IDS[0]}))]))
    weights.remove_unneeded()
    assert len(store.weights(IDS[0])) == 2


@pytest.mark.slow
def test_a_trained_run_without_weights_is_done_and_is_no_model(fca):
    words = ("subset.ncl=2", "recipe.snapshots=[0.5]", "machine.keep_weights=none", *SMALL)
    code, _, err = fca(*words)
    assert code == 0, err
    run_id = results("outputs", "task == 'train'")["run_id"].iloc[0]
    assert not Store(Path("outputs")).weights(run_id)
    assert "3 runs: 3 done" in fca("-m", *words)[1]
    code, _, err = fca("task=predict", "model=run", f"model.run_id={run_id}", "shift=corruption/fog/3", *SMALL[:2])
    assert code == 2
    assert f"model.snapshot = best; allowed: weights that are there; those of run {run_id} were removed by" in err
    again = err.partition("train it again: ")[2].strip()
    assert again.startswith(f"rm -r outputs/runs/{run_id}; fca run subset.ncl=2 ")
    assert again.endswith(" machine.keep_weights=snapshots")
    assert again.count("keep_weights") == 1
    with pytest.raises(FcaError, match=r"model\.snapshot = 0\.5; .* were removed by machine\.keep_weights=none"):
        StoredRun("outputs", run_id, "0.5").identity()


@pytest.mark.parametrize("kind", ["--weights", "--checkpoints", "--cache"])
def test_somebody_elses_store_is_refused_by_its_name(kind, store, monkeypatch, capsys):
    def refuse(path, *_):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(clean, "remove", refuse)
    monkeypatch.setattr(Store, "remove_weights", lambda self, run_id, paths, why: refuse(paths[0]))
    monkeypatch.setattr(claims, "clear", refuse)
    assert clean.main(["--outputs", str(store.outputs), kind, "--yes"]) == 2
    err = capsys.readouterr().err
    allowed = rf"a store that you may read and change \(Permission denied: {store.outputs}/\S+\); next: "
    assert re.fullmatch(rf"error: --outputs = {store.outputs}; allowed: {allowed}.*\n", err), err


def test_a_store_that_may_not_be_read_is_one_line_of_every_command(store, monkeypatch, capsys):
    def refuse(_):
        raise PermissionError(13, "Permission denied", str(store.outputs / "runs"))

    monkeypatch.setattr(Store, "run_ids", refuse)
    monkeypatch.setattr(sys, "argv", ["fca", "status", "--outputs", str(store.outputs)])
    with pytest.raises(SystemExit, match="2"):
        main.main()
    err = capsys.readouterr().err
    assert re.search(
        rf"^error: .*Permission denied.*{store.outputs}/runs|^error: {store.outputs}/runs: Permission", err
    ), err
    assert "Traceback" not in err
