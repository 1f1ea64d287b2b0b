from collections import Counter
from dataclasses import replace

import pytest

from fca.types import FcaError
from tests.studies.generate.support.painter import NINE, plan


def test_the_plan_of_the_paper_has_twelve_images_a_level_four_a_sublevel():
    requests = list(plan(per_level=12).requests())
    assert len(requests) == len(plan(per_level=12)) == 2 * 2 * 3 * 12
    assert set(Counter((r.label, r.attribute, r.sublevel) for r in requests).values()) == {4}
    assert {(r.level, r.sublevel) for r in requests} == {
        ("easy", 1), ("easy", 2), ("easy", 3), ("medium", 4), ("medium", 5), ("medium", 6), ("hard", 7), ("hard", 8),
        ("hard", 9),
    }  # fmt: skip
    assert len({r.key for r in requests}) == len(requests)


def test_a_triplet_has_every_level_and_one_seed():
    triplets = {}
    for request in plan(per_level=4).requests():
        triplets.setdefault(request.triplet, []).append(request)
    assert all([r.level for r in three] == ["easy", "medium", "hard"] for three in triplets.values())
    assert all(len({r.seed for r in three}) == 1 for three in triplets.values())
    assert len({three[0].seed for three in triplets.values()}) == len(triplets)


def test_any_part_of_a_plan_is_balanced():
    first = [request for request, _ in zip(plan(per_level=5).requests(), range(2 * 2 * 3), strict=False)]
    assert set(Counter((r.label, r.attribute, r.level) for r in first).values()) == {1}


def test_more_images_a_level_leave_the_others_as_they_were():
    assert list(plan(per_level=2).requests()) == list(plan(per_level=7).requests())[: len(plan(per_level=2))]


def test_a_prompt_names_the_class_and_its_own_descriptions_go_first():
    own = plan(descriptions={"n02": {"size": [f"my {{name}} {n}" for n in range(9)]}})
    assert own.prompt("n01", "size", 3) == "A cat, step 3"
    assert own.prompt("n02", "size", 1) == "my dog 0"
    assert own.prompt("n02", "view", 9) == "A dog, step 9"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"per_level": 0}, r"plan.per_level = 0; allowed: a whole number, at least 1, at most 10,000"),
        ({"seed": -1}, r"plan.seed = -1"),
        ({"classes": {}}, r"plan.classes = none"),
        ({"attributes": {}}, r"plan.attributes = none"),
        ({"attributes": {"size": NINE[:7]}}, r"plan.attributes.size = 7 descriptions; allowed: 9, easy to hard"),
        ({"attributes": {"size": ["a {nme}", *NINE[1:]]}}, r"plan.attributes.size = 'a \{nme\}'"),
        ({"attributes": {"size": [" ", *NINE[1:]]}}, r"plan.attributes.size = ' '"),
        ({"attributes": {"a/b": NINE}}, r"name in the plan = 'a/b'"),
        ({"classes": {"..": "cat"}}, r"name in the plan = '..'"),
        ({"descriptions": {"n03": {"size": NINE}}}, r"plan.descriptions.n03.size = unknown"),
        ({"descriptions": {"n01": {"size": NINE[:8]}}}, r"plan.descriptions.n01.size = 8 descriptions"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(changed, said):
    with pytest.raises(FcaError, match=said):
        plan(**changed).resolved()


def test_a_level_without_words_is_named_with_its_class():
    mute = plan(attributes={"size": NINE, "view": []}, descriptions={"n01": {"view": NINE}})
    with pytest.raises(FcaError, match=r"descriptions of n02, view = none"):
        mute.resolved().check_words()


def test_a_plan_file_says_the_same_again(tmp_path):
    file = tmp_path / "my.yaml"
    mine = plan(descriptions={"n02": {"size": [f"ein Hündchen {n}" for n in range(9)]}}, seed=7)
    file.write_text(mine.as_yaml(), encoding="utf-8")
    assert plan(file=str(file)).resolved() == mine
    assert replace(plan(name="other"), file=str(file)).resolved() == mine


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "a readable YAML file"),
        ("- a", "keys of name, classes"),
        ("clases: {a: b}", r"key of .*my.yaml = clases; allowed: name, classes"),
        ("classes: [a, b]", r"classes of .*my.yaml = \['a', 'b'\]"),
        ("classes: {1: b}", r"classes of .*my.yaml = \{1: 'b'\}"),
        ("per_level: many", r"per_level of .*my.yaml = 'many'"),
        ("attributes: {size: [1, 2]}", r"attributes of .*my.yaml"),
    ],
)
def test_a_plan_file_that_cannot_be_read_is_named(tmp_path, text, said):
    (tmp_path / "my.yaml").write_text(text)
    with pytest.raises(FcaError, match=said):
        plan(file=str(tmp_path / "my.yaml")).resolved()


def test_a_plan_file_that_is_not_there_is_named():
    with pytest.raises(FcaError, match=r"plan.file = no/such.yaml"):
        plan(file="no/such.yaml").resolved()
