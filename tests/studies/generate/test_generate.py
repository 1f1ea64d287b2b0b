import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from fca.data.manifest import Generated
from fca.studies.generate.drawing import Budget, generate
from fca.studies.generate.folder import Folder
from fca.types import FcaError, UnreadableImage
from tests.studies.generate.support.painter import NINE, Painter, Press, Scribe, plan

ALL = 2 * 2 * 3 * 2  # images of the plan
KEY = "n01/size/medium/01-5"


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path / "pets")


def test_every_image_of_a_plan_is_drawn_told_and_listed(folder):
    done = generate(plan(), Painter(), folder)
    assert (done.drawn, done.refused, done.left, done.money) == (ALL, 0, 0, 12.0)
    lines = folder.journal.lines()
    assert [line["key"] for line in lines] == [request.key for request in plan().requests()]
    line = next(line for line in lines if line["key"] == KEY)
    assert line["prompt"] == "A cat, step 5"
    assert (line["level"], line["sublevel"], line["triplet"]) == ("medium", 5, "n01/size/01")
    assert (line["generator"], line["version"], line["money"]) == ("painter", "1", 0.5)
    assert line["facts"] == {"revised_prompt": "A cat, step 5!"}
    assert line["full_mask"] is None
    expected = np.random.default_rng([line["seed"], 5]).integers(0, 256, (6, 8, 3), np.uint8)
    assert (np.array(Image.open(folder.root / line["file"])) == expected).all()


def test_what_is_there_is_never_drawn_again(folder):
    generate(plan(), Painter(), folder)
    (folder.root / "images" / f"{KEY}.png").unlink()
    again = Painter()
    assert generate(plan(), again, folder).drawn == 1
    assert [request.key for request in again.drawn] == [KEY]


DAMAGE = {
    "empty": lambda whole: b"",
    "cut": lambda whole: whole[:-20],
    "without its end mark": lambda whole: whole[:-12],
    "another kind of file": lambda whole: b"<html>502 Bad Gateway</html>",
    "a byte that changed": lambda whole: whole[:60] + bytes([whole[60] ^ 255]) + whole[61:],
}


@pytest.mark.wide
@pytest.mark.parametrize("kind", ["images", "masks"])
@pytest.mark.parametrize("damaged", DAMAGE.values(), ids=DAMAGE)
def test_an_image_or_mask_that_is_damaged_is_drawn_again(folder, damaged, kind, caplog):
    generate(plan(), Painter(), folder)
    file = folder.root / kind / f"{KEY}.png"
    whole = file.read_bytes()
    file.write_bytes(damaged(whole))
    again = Painter()
    assert generate(plan(), again, folder).drawn == 1
    assert [request.key for request in again.drawn] == [KEY]
    assert file.read_bytes() == whole
    assert f"1 images of {folder.root} are missing or damaged, such as images/{KEY}.png" in caplog.text


def test_a_reader_refuses_a_damaged_image_and_names_the_command_that_draws_it_again(folder):
    generate(plan(), Painter(), folder)
    (folder.root / "images" / f"{KEY}.png").write_bytes(b"")
    data = Generated(str(folder.root)).load()
    at = data.items["image_id"].tolist().index(KEY)
    with pytest.raises(UnreadableImage, match=rf"{KEY}\.png: .*; fca generate out={folder.root} draws it again"):
        data.read(at)


def test_a_changed_prompt_is_drawn_anew_and_the_last_one_counts(folder):
    generate(plan(), Painter(), folder)
    changed = plan(attributes={"size": [*NINE[:4], "Half a {name}", *NINE[5:]], "view": NINE})
    assert generate(changed, Painter(), folder).drawn == 2  # one a class
    listed = pd.read_csv(folder.root / "manifest.csv").set_index("image_id")
    assert listed.loc[KEY, "prompt"] == "Half a cat"
    assert len(listed) == ALL


def test_a_refusal_is_recorded_and_the_rest_goes_on(folder):
    painter = Painter(refuses={KEY})
    done = generate(plan(), painter, folder)
    assert (done.drawn, done.refused, done.left) == (ALL - 1, 1, 0)
    assert generate(plan(), painter, folder).refused == 0, "it is not asked for again"
    listed = pd.read_csv(folder.root / "manifest.csv").set_index("image_id")
    assert listed.loc[KEY, ["state", "reason", "accepted"]].tolist() == ["refused", "not this one", False]
    assert "refused: not this one" in (folder.root / "review.html").read_text()


def test_a_service_that_is_down_for_good_leaves_what_was_drawn(folder):
    with pytest.raises(FcaError, match=r"painter: overloaded; allowed: a service that answers"):
        generate(plan(), Painter(works=5), folder)
    assert len(folder.journal.lines()) == len(pd.read_csv(folder.root / "manifest.csv")) == 5
    assert generate(plan(), Painter(), folder).drawn == ALL - 5


def test_a_journal_cut_short_loses_its_last_line_alone(folder):
    generate(plan(), Painter(), folder)
    path = folder.root / "journal.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    again = Painter()
    assert generate(plan(), again, folder).drawn == 1
    assert [json.loads(line)["key"] for line in path.read_text().splitlines()] == [r.key for r in plan().requests()]


def test_a_broken_line_in_the_middle_is_an_error(folder):
    generate(plan(), Painter(), folder)
    path = folder.root / "journal.jsonl"
    path.write_text("{half\n" + path.read_text())
    with pytest.raises(FcaError, match=r"a line of .*journal.jsonl = b'\{half'"):
        generate(plan(), Painter(), folder)


def test_a_set_is_of_one_generator(folder):
    generate(plan(), Painter(works=99), folder)
    with pytest.raises(FcaError, match=r"generator = other, 1; allowed: painter, 1, which drew"):
        generate(plan(), Painter(name="other"), folder)


@pytest.mark.parametrize(("budget", "drawn"), [(Budget(images=7), 7), (Budget(money=2.2), 4), (Budget(9, 2), 4)])
def test_a_budget_is_of_the_folder_and_stops_cleanly(folder, budget, drawn):
    done = generate(plan(), Painter(), folder, budget)
    assert (done.drawn, done.left) == (drawn, ALL - drawn)
    assert generate(plan(), Painter(), folder, budget).drawn == 0
    assert generate(plan(), Painter(), folder).drawn == ALL - drawn


def test_what_was_refused_takes_nothing_of_the_budget(folder):
    assert generate(plan(), Painter(refuses={"n01/size/easy/00-1"}), folder, Budget(images=3)).drawn == 3


def test_passes_of_several_images_leave_what_single_ones_leave(folder, tmp_path):
    press = Press(refuses={KEY})
    done = generate(plan(), press, folder)
    assert (done.drawn, done.refused, done.left, done.money) == (ALL - 1, 1, 0, 0.5 * (ALL - 1))
    assert [len(keys) for keys in press.passes] == [5, 5, 5, 5, 4]
    alone = Folder(tmp_path / "alone")
    generate(plan(), Painter(refuses={KEY}), alone)
    own = {"seconds", "together"}
    pairs = zip(folder.journal.lines(), alone.journal.lines(), strict=True)
    assert all({k: a[k] for k in a.keys() - own} == {k: b[k] for k in b.keys() - own} for a, b in pairs)
    assert {line["together"] for line in folder.journal.lines()} == {keys[0] for keys in press.passes}


@pytest.mark.parametrize(("budget", "drawn"), [(Budget(images=7), 7), (Budget(money=2.2), 4), (Budget(images=11), 11)])
def test_a_budget_is_kept_to_the_image_by_passes_of_several(folder, budget, drawn):
    refused = {request.key for request in list(plan().requests())[1:7:2]}
    press = Press(refuses=refused)
    assert generate(plan(), press, folder, budget).drawn == drawn
    assert generate(plan(), press, folder, budget).drawn == 0
    assert generate(plan(), press, folder).drawn == ALL - len(refused) - drawn
    keys = [key for keys in press.passes for key in keys]
    assert len(keys) == len(set(keys)) == ALL, "nothing is drawn twice"


def test_a_pass_that_failed_is_drawn_again_and_the_ones_before_are_kept(folder):
    with pytest.raises(FcaError, match="painter: overloaded"):
        generate(plan(), Press(works=13), folder)
    assert len(folder.journal.lines()) == 10
    press = Press()
    assert generate(plan(), press, folder).drawn == ALL - 10
    assert press.passes[0][0] == list(plan().requests())[10].key


@pytest.mark.parametrize("budget", [Budget(images=0), Budget(money=0), Budget(money=-1.0)])
def test_a_budget_of_nothing_is_refused(folder, budget):
    with pytest.raises(FcaError, match=r"budget.(images|money) = (0|-1.0); allowed: above 0"):
        generate(plan(), Painter(), folder, budget)


def test_only_a_money_budget_needs_a_price(folder):
    with pytest.raises(FcaError, match=r"generator.costs = None"):
        generate(plan(), Painter(costs=None), folder, Budget(money=1))
    assert generate(plan(), Painter(costs=None), folder).drawn == ALL
    assert folder.journal.lines()[0]["money"] is None


def test_a_writer_is_asked_once_for_every_class_and_attribute(folder):
    scribe, mute = Scribe(), plan(attributes={"size": [], "view": NINE}, descriptions={"n01": {"view": NINE}})
    done = generate(mute, Painter(works=3, costs=1.0), folder, Budget(images=3), scribe)
    assert scribe.asked == [("cat", "size"), ("dog", "size"), ("dog", "view")]
    assert done.money == 3 * 0.25 + 3
    generate(mute, Painter(), folder, writer=scribe)
    assert len(scribe.asked) == 3
    prompts = {line["key"]: line["prompt"] for line in folder.journal.lines() if line["kind"] == "image"}
    assert (prompts[KEY], prompts["n01/view/easy/00-1"]) == ("cat by size 5", "A cat, step 1")
    kept = plan(file=str(folder.root / "plan.yaml")).resolved()
    assert kept.prompt("n02", "view", 9) == "dog by view 9"
    assert generate(kept, Painter(), folder).drawn == 0, "the kept plan is the same plan"


def test_words_that_are_refused_are_the_plan_s_own_or_an_error(folder):
    generate(plan(), Painter(), folder, writer=Scribe(refuses=[("cat", "size")]))
    assert {line["prompt"] for line in folder.journal.lines() if line.get("key") == KEY} == {"A cat, step 5"}
    mute = plan(attributes={"size": []}, name="mute")
    with pytest.raises(FcaError, match=r"descriptions of n01, size = none"):
        generate(mute, Painter(), Folder(folder.root.parent / "mute"), writer=Scribe(refuses=[("cat", "size")]))


def test_a_money_budget_that_ends_among_the_words_draws_nothing(folder):
    done = generate(plan(), Painter(), folder, Budget(money=0.6), Scribe())
    assert (done.drawn, done.left, done.money) == (0, ALL, 0.5)


LINE = {"kind": "refusal", "key": "a", "label": "a", "name": "a", "attribute": "a", "level": "easy", "refused": "no"}
LINE |= {"generator": "painter", "version": "1", "prompt": None, "seed": 0}


@pytest.mark.wide
@pytest.mark.parametrize(
    "line",
    [
        b"nonsense", b"\xff\x00", b"[1]", b"null", b"[" * 100_000, b"{}",
        *(json.dumps({**LINE, **odd}).encode() for odd in (
            {"kind": "image"}, {"kind": "other"}, {"kind": []}, {"key": None}, {"level": "odd"}, {"refused": 1},
        )),
    ],
    ids=lambda line: line[-40:].decode(errors="replace"),
)  # fmt: skip
def test_a_whole_line_of_a_journal_that_is_none_is_named_and_nothing_is_drawn(folder, line):
    """The images are the user's own, and paid for: nothing of the journal is thrown away."""
    (folder.root / "images").mkdir(parents=True)
    content = json.dumps(LINE).encode() + b"\n" + line + b"\n"
    folder.journal.path.write_bytes(content)
    painter = Painter()
    with pytest.raises(FcaError, match=r"a line of .*journal\.jsonl = .*; next: restore the file, or remove the line"):
        generate(plan(), painter, folder)
    assert not painter.drawn
    assert folder.journal.path.read_bytes() == content
    folder.journal.path.write_bytes(content[:-1])  # what a kill leaves of a line never counted
    assert generate(plan(), painter, folder).drawn == ALL


@pytest.mark.parametrize("put", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to(path.name)])
def test_a_journal_that_is_no_file_is_named(folder, put):
    folder.root.mkdir()
    put(folder.journal.path)
    with pytest.raises(FcaError, match=r"journal = .*journal\.jsonl (is no file|cannot be read)"):
        generate(plan(), Painter(), folder)


def test_the_generated_set_leaves_out_what_was_refused_or_struck(folder):
    generate(plan(), Painter(refuses={KEY}), folder)
    (folder.root / "struck.txt").write_text("# by hand\nn02/view/hard/00-7\n\n")
    data = Generated(str(folder.root)).load()
    assert len(data.items) == ALL - 2
    assert not {KEY, "n02/view/hard/00-7"} & set(data.items["image_id"])
    assert set(data.items["split"]) == {"test"}
    assert data.classes == ("n01", "n02")
    assert {"attribute", "level", "sublevel", "index", "triplet"} <= set(data.items)
    assert data.read(0).shape == (6, 8, 3)
    mask = data.mask(0)
    assert mask is not None
    assert mask.sum() == 4
    generate(plan(), Painter(refuses={KEY}), folder)
    listed = pd.read_csv(folder.root / "manifest.csv").set_index("image_id")
    assert listed.index[~listed["accepted"]].tolist() == [KEY, "n02/view/hard/00-7"]


def test_a_struck_image_that_never_was_is_an_error(folder):
    generate(plan(), Painter(), folder)
    (folder.root / "struck.txt").write_text("n02/view/hard/0-7\n")
    with pytest.raises(FcaError, match=r"struck.txt = n02/view/hard/0-7"):
        Generated(str(folder.root)).load()


def test_a_folder_without_a_manifest_says_what_to_run(tmp_path):
    with pytest.raises(FcaError, match=r"next: run or go on with: fca generate out="):
        Generated(str(tmp_path)).load()


def test_a_plan_half_written_by_another_thread_or_a_killed_command_is_nobody_else_s_file(folder):
    folder.root.mkdir(parents=True)
    (folder.root / ".plan.yaml.1@here.0123456789ab.part").touch()
    with folder.held(wait=False):
        pass
    (folder.root / "thesis.yaml").touch()
    with pytest.raises(FcaError, match=r"this one has thesis\.yaml"), folder.held(wait=False):
        pass


def test_two_commands_do_not_fill_one_folder(folder):
    with folder.held(wait=False), pytest.raises(FcaError, match=r"no other command is adding to"):
        generate(plan(), Painter(), folder)
