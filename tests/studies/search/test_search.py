"""Searches of a domain whose failures are known: by night the classifier fails."""

import json
import os
import re
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from fca.cli import report as report_command
from fca.cli import results as results_command
from fca.data.files import decode
from fca.store.journal import Journal
from fca.studies.search.stats.policies import make_policy
from fca.types import FcaError, Run
from tests.studies.search.support.search_task import Eye, Lab, Painter, Press, domain, search

SPACE = domain().space


@pytest.fixture
def lab(tmp_path):
    return Lab(tmp_path)


def same(first, second, but=("visit_s",)):
    return all(
        np.array_equal(of, second[name], equal_nan=of.dtype.kind == "f")
        for name, of in first.items()
        if name not in but
    )


def test_a_search_visits_every_subdomain_and_counts_what_was_right(lab):
    task = search(generator=(painter := Painter()), stored_px=8)
    found = lab(task)
    arrays, folder = found.arrays, lab.folder(task)
    assert sorted(arrays["visited"]) == list(range(len(SPACE))) == list(range(10))
    assert (arrays["shown"] == 5).all()
    night = np.array([SPACE.values(int(subdomain))["time"] == "night" for subdomain in arrays["visited"]])
    assert (arrays["correct"][~night] == 5).all()
    assert arrays["correct"][night].mean() < 2.5
    assert found.columns["accuracy"] == pytest.approx((arrays["correct"] / 5).mean())
    assert found.columns["n_accepted"] == found.columns["n_drawn"] == 50
    assert found.columns["ended"] == "all visited"
    assert len(painter.keys) == len(set(painter.keys)) == 50
    at = 17  # what was predicted is what is stored, at 8 pixels
    visit, number = divmod(at, 5)
    file = folder / "images" / f"{visit:04d}-{arrays['visited'][visit]}" / f"{number:04d}.png"
    pixels = decode(file.read_bytes(), "")
    assert pixels.shape == (8, 8, 3)
    logit = (pixels.mean() - 120) / 10
    assert arrays["image_p"][at] == pytest.approx(1 / (1 + np.exp(-2 * logit)), abs=1e-5)  # float32
    assert arrays["image_correct"][at] == (arrays["image_p"][at] >= 0.5)


def test_the_images_of_a_visit_are_drawn_in_passes_and_are_the_same_as_one_by_one(lab, tmp_path):
    found = []
    for name, generator in (("alone", Painter()), ("together", press := Press())):
        own, task = Lab(tmp_path / name), search(generator=generator, max_subdomains=6)
        arrays, folder = own(task).arrays, own.folder(task)
        images = {str(file.relative_to(folder)): decode(file.read_bytes(), "") for file in folder.rglob("*.png")}
        found.append((arrays, images))
    (one, alone), (other, together) = found
    assert press.passes == [3, 2] * 6, "five images a visit"
    assert same(one, other)
    assert alone.keys() == together.keys()
    assert all((alone[name] == together[name]).all() for name in alone)


def test_choices_are_the_policy_s_own_with_the_visits_in_hand_as_empty_ones(lab):
    found = lab(search(policy="gp_pairwise", starts=2, parallel=3, max_subdomains=8))
    visited, correct, shown = (found.arrays[name].astype(int) for name in ("visited", "correct", "shown"))
    policy = make_policy("gp_pairwise", SPACE, 0, starts=2)
    for n in range(8):
        known = max(0, n - 2)  # with three in hand
        seen = np.where(np.arange(n) < known, shown[:n], 0), np.where(np.arange(n) < known, correct[:n], 0)
        assert policy.next(visited[:n], seen[1], seen[0]) == visited[n]
    assert found.run.metadata["policy"] == "gp_pairwise starts=2"


def test_the_same_search_in_another_folder_finds_the_same_and_another_seed_something_else(lab, tmp_path):
    task = search(generator=Painter(), max_subdomains=6, policy="gp_pairwise", starts=3)
    once = lab(task).arrays
    assert same(once, Lab(tmp_path / "again")(task).arrays)
    other = Lab(tmp_path / "other")(task, seed=1).arrays
    assert not np.array_equal(once["image_p"], other["image_p"])


@pytest.mark.parametrize("policy", ["random", "gp_pairwise"])
def test_a_search_of_an_earlier_version_answers_for_none(lab, policy):
    [run] = search(policy=policy).plan(lab.setup())
    changed = {"revised_rules", "revised_policy"} if policy == "gp_pairwise" else {"revised_rules"}
    assert {key for key in run.identity if key.startswith("revised")} == changed
    before = {key: value for key, value in run.identity.items() if key not in changed}
    assert Run("search", before).run_id != run.run_id


@pytest.mark.parametrize(
    ("budget", "visits", "ended"),
    [
        ({"max_subdomains": 3}, 3, "max_subdomains"),
        ({"max_images": 13}, 3, "max_images"),
        ({"max_hours": 1e-9}, 2, "max_hours"),  # two were in hand
        ({"max_money": 0.64, "generator": Painter(costs=0.05)}, 3, "max_money"),
    ],
)
def test_a_budget_ends_it_and_is_named(lab, budget, visits, ended):
    found = lab(search(**budget))
    assert (len(found.arrays["visited"]), found.columns["ended"]) == (visits, ended)
    if ended == "max_images":
        assert found.arrays["shown"].tolist() == [5, 5, 3]
    if ended == "max_money":
        assert found.columns["money"] == pytest.approx(0.6)
        assert found.arrays["drawn"].tolist() == [5, 5, 2]


def test_revisits_see_further_images_and_fewer_or_more_as_configured(lab):
    painter = Painter()
    found = lab(search(generator=painter, images=[2, 4], visits=3, max_subdomains=25, parallel=3))
    arrays, counts = found.arrays, {}
    for subdomain, shown in zip(arrays["visited"].tolist(), arrays["shown"].tolist(), strict=True):
        assert shown == (2 if counts.get(subdomain, 0) == 0 else 4)
        counts[subdomain] = counts.get(subdomain, 0) + 1
    assert max(counts.values()) <= 3
    assert len(painter.keys) == len(set(painter.keys)) == arrays["shown"].sum()


class Noon:
    """Keeps what is bright; counts on no text."""

    def label(self):
        return "noon"

    def texts(self, domain):
        return []

    def accept(self, logits, subdomain, domain):
        kept = np.arange(len(logits)) % 2 == 0
        return kept, np.full(len(logits), np.nan)


def test_rejected_images_are_replaced_and_kept_on_disk_and_in_the_arrays(lab):
    painter = Painter(refuses=("beach",))
    task = search(generator=painter, filter=Noon(), second=Eye(80.0), max_draws=8)
    found = lab(task)
    arrays = found.arrays
    beach = np.array([SPACE.values(int(subdomain))["place"] == "beach" for subdomain in arrays["visited"]])
    assert (arrays["shown"][~beach] == 5).all()
    assert (arrays["shown"][beach] == 0).all()
    assert (arrays["drawn"][beach] == 8).all()
    of_image = beach[arrays["image_visit"]]
    assert np.isnan(arrays["image_p"][of_image]).all()
    assert len(arrays["image_visit"]) == arrays["drawn"].sum() == found.columns["n_drawn"]
    assert np.bincount(arrays["image_visit"], arrays["image_accepted"]).tolist() == arrays["shown"].tolist()
    assert ((arrays["image_second"] == -1) == ~arrays["image_accepted"]).all()
    assert len(list(lab.folder(task).glob("images/*/*.png"))) == (~of_image).sum()
    assert found.columns["warning"] == "2 of 10 visits have fewer images than task.images asks for"
    assert found.columns["accuracy"] == pytest.approx(
        (arrays["correct"] / np.maximum(arrays["shown"], 1))[~beach].mean()
    )
    rejected = arrays["gallery_image"][~arrays["image_accepted"][arrays["gallery_image"]]]
    assert 0 < len(rejected) <= 24
    assert not of_image[rejected].any()
    assert arrays["gallery"].shape == (len(arrays["gallery_image"]), 64, 64, 3)


def test_rules_are_confirmed_on_images_that_the_search_never_saw(lab):
    big = domain(
        attributes={**domain().attributes, "season": ["spring", "summer", "autumn"]},
        prompt="{size} {subject} {place} {time} {season}",
    )
    painter = Painter()
    found = lab(search(domain=big, generator=painter, confirm=3, max_subdomains=24))
    arrays = found.arrays
    assert json.loads(arrays["rules"][0]) == [{"time": "night"}]
    assert arrays["fresh_rule"].tolist() == [0, 0, 0, -1, -1, -1]
    assert (arrays["fresh_shown"] == 5).all()
    inside = [big.space.values(int(subdomain))["time"] == "night" for subdomain in arrays["fresh_subdomain"]]
    assert inside == [True] * 3 + [False] * 3
    assert (arrays["fresh_correct"][3:] == 5).all()
    assert arrays["fresh_correct"][:3].mean() < 2.5
    assert len(painter.keys) == len(set(painter.keys)) == 24 * 5 + 6 * 5
    assert found.columns["n_drawn"] == 120


def test_an_interrupted_search_goes_on_and_draws_and_predicts_nothing_twice(lab, tmp_path):
    task = search(generator=(painter := Painter()), policy="gp_pairwise", starts=2, max_subdomains=8, confirm=2)
    whole = lab(task)
    interrupted, other = Eye(fails_at=3), Lab(tmp_path / "other")
    task = search(generator=(again := Painter()), policy="gp_pairwise", starts=2, max_subdomains=8, confirm=2)
    with pytest.raises(KeyboardInterrupt):
        other(task, model=interrupted)
    folder = other.folder(task)
    assert len(Journal(folder / "journal.jsonl").lines()) == 3
    with (folder / "journal.jsonl").open("a") as file:
        file.write('{"visit": "00')  # torn
    found = other(task, model=(fresh := Eye()))
    assert same(whole.arrays, found.arrays)
    assert sorted(again.keys) == sorted(painter.keys)
    assert sum(fresh.seen) + sum(interrupted.seen[:3]) == len(painter.keys)
    seconds = [line["seconds"] for line in Journal(folder / "journal.jsonl").lines()]
    assert found.columns["gpu_s"] == pytest.approx(sum(seconds))
    assert len(other(task, model=(third := Eye())).arrays) == len(found.arrays)
    assert third.seen == []


def test_a_damaged_journal_costs_verdicts_and_no_image(lab, caplog):
    task = search(generator=(painter := Painter()), max_subdomains=4)
    whole = lab(task)
    path = lab.folder(task) / "journal.jsonl"
    path.write_text(path.read_text().replace('"draws"', '"drawn"', 1))
    assert same(whole.arrays, lab(task).arrays)
    assert len(painter.keys) == 20
    assert "all images are judged again" in caplog.text


def test_images_of_the_journal_that_are_missing_or_damaged_are_drawn_again_with_their_seeds(lab, caplog):
    task = search(generator=Painter(), max_subdomains=4)
    whole = lab(task)
    files = sorted(lab.folder(task).glob("images/*/*.png"))
    before = [decode(file.read_bytes(), "") for file in files]
    empty, cut, missing, replaced = files[0], files[6], files[11], files[17]
    empty.write_bytes(b"")
    cut.write_bytes(cut.read_bytes()[:-30])
    missing.unlink()
    os.mkfifo(missing)  # of a stranger's store: it would never end
    replaced.write_text("no image")

    again = search(generator=(painter := Painter()), max_subdomains=4)
    assert same(whole.arrays, lab(again).arrays)
    assert len(painter.keys) == 4
    assert all((decode(file.read_bytes(), "") == pixels).all() for file, pixels in zip(files, before, strict=True))
    assert "4 images are missing or damaged, such as " in caplog.text


def test_an_image_that_can_no_longer_be_drawn_is_named_with_what_to_do(lab):
    task = search(generator=Painter(), max_subdomains=4)
    lab(task)
    gone = next(iter(sorted(lab.folder(task).glob("images/*/*.png"))))
    gone.unlink()
    refusing = search(generator=Painter(refuses=("day", "night")), max_subdomains=4)
    with pytest.raises(FcaError, match=rf"{gone}; allowed: an image; not this one; next: remove .*journal\.jsonl"):
        lab(refusing)


def test_a_service_that_is_down_ends_it_and_what_was_drawn_is_kept(lab):
    task = search(generator=Painter(works=7))
    with pytest.raises(FcaError, match="generator = painter: overloaded; allowed: a service that answers"):
        lab(task)
    assert len(list(lab.folder(task).glob("images/*/*.png"))) == 7
    lab.store.drop(lab.folder(task).name)  # as the command does
    task = search(generator=(painter := Painter()))
    lab(task)
    assert len(painter.keys) == 50 - 7


RENDERED = "task=search domain=rendered generator=rendered generator.size=32 task.images=[6] task.max_subdomains=14"


def trained(fca):
    words = "dataset=rendered dataset.size=32 dataset.classes=[car,mug] model=test_resnet model.input_size=32 limit=20"
    assert fca(*words.split(), "recipe.epochs=2", "recipe.min_steps=0", "logger=none")[0] == 0
    return Lab(Path()).store.rows("task == 'train'")["run_id"].iloc[0]


@pytest.mark.slow
def test_a_search_that_was_killed_goes_on_as_if_it_had_not_been(fca, start, tmp_path):
    run_id = trained(fca)
    words = [*RENDERED.split(), "model=run", f"model.run_id={run_id}", "logger=none", "task.starts=3", "task.confirm=2"]
    assert fca(*words, "task.workers=1")[0] == 0
    store = Lab(tmp_path).store
    row = store.rows("task == 'search'").iloc[0]
    folder = store.folder(row["run_id"])
    whole = {path.stem: np.load(path) for path in folder.glob("*.npy")}
    shutil.rmtree(folder)
    process = start("run", *words, "task.workers=2", cwd=tmp_path)
    deadline = time.time() + 100
    while not (folder / "journal.jsonl").exists() or (folder / "journal.jsonl").read_text().count("\n") < 5:
        assert time.time() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    drawn = {path: path.stat().st_mtime_ns for path in folder.glob("images/*/*.png")}
    lines = Journal(folder / "journal.jsonl").lines()
    assert 0 < len(lines) < 14
    assert fca(*words, "task.workers=1")[0] == 0
    assert same(whole, {path.stem: np.load(path) for path in folder.glob("*.npy")})
    assert all(path.stat().st_mtime_ns == at for path, at in drawn.items()), "what was drawn is drawn again"
    after = Journal(folder / "journal.jsonl").lines()
    assert after[: len(lines)] == lines
    assert len({line["visit"] for line in after}) == len(after)
    assert fca("--columns", "domain,acceptance,ended", door=results_command)[1]


@pytest.mark.slow
def test_two_commands_at_once_draw_every_image_once(fca, start, tmp_path):
    run_id = trained(fca)
    words = [
        *RENDERED.split(),
        "model=run",
        f"model.run_id={run_id}",
        "logger=none",
        "task.workers=1",
        "task.confirm=0",
    ]
    both = [start("run", *words, cwd=tmp_path) for _ in range(2)]
    assert [process.wait(100) for process in both] == [0, 0]
    store = Lab(tmp_path).store
    assert len(store.rows("task == 'search'")) == 1
    lines = Journal(store.folder(store.rows("task == 'search'")["run_id"].iloc[0]) / "journal.jsonl").lines()
    assert len(lines) == len({line["visit"] for line in lines}) == 14


@pytest.mark.slow
def test_a_search_of_drawn_objects_ends_in_a_page_that_names_conditions(fca, tmp_path):
    run_id = trained(fca)
    words = ["experiment=rendered_failures", f"model.run_id={run_id}", f"task.second.run_id={run_id}", "logger=none"]
    words += ["dataset.size=32", "dataset.classes=[car,mug]", "limit=20", "generator.size=32", "task.images=[4]"]
    code, out, err = fca(*words, "task.max_subdomains=60", "task.confirm=2", "task.policy=gp_pairwise")
    assert code == 0, out + err
    assert fca("report=failure_search", "report.analyses=[failure_search]", "logger=none", door=report_command)[0] == 0
    page = (tmp_path / "outputs/reports/failure_search/index.html").read_text()
    row = Lab(tmp_path).store.rows("task == 'search'").iloc[0]
    assert row["second"].startswith("test_resnet")
    [lowest] = re.findall(
        r"<li>car, test_resnet: 60 of 1,008 subdomains were visited; accuracy is lowest, (.*)</li>", page
    )
    assert all(f"{attribute}: " in lowest for attribute in ("light", "view", "backdrop"))
