"""What searches found, as tables: against literal computation on stores whose every image is known."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fca.report import finding
from fca.stats.intervals import wilson
from fca.store import Store
from fca.studies.search.failures import FailureSearch
from fca.studies.search.stats import Domain
from fca.studies.search.stats.counts import image_correlation, share_with_interval
from fca.studies.search.stats.explain import members
from fca.types import FcaError
from tests.studies.search.support.searched_store import arrays_of, searched, small_domain
from tests.support.lab import Lab

DOMAIN = small_domain()
SOME = np.random.default_rng(1).permutation(len(DOMAIN))[:40]
RULE = "time: night, backdrop: cluttered"


def tables(lab, **options):
    return {table.name: table.frame for table in FailureSearch(shown=1, **options)(lab.store)}


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """A complete search with a second classifier, and a part of the domain with another network and none."""
    lab = Lab(Store(tmp_path_factory.mktemp("known") / "outputs"))
    searched(lab)
    alone = arrays_of(DOMAIN, SOME, seed=4, second=None, refused=[0])
    searched(lab, SOME, alone, model="mobilenet", second=None, skill=-0.1)
    return lab


@pytest.fixture(scope="module")
def made(known):
    return FailureSearch(partial=15)(known.store)


@pytest.fixture(scope="module")
def found(made):
    return {table.name: table.frame for table in made}


@pytest.fixture(scope="module")
def whole(known):
    return tables(known)


def test_a_line_a_search_is_that_of_its_images(known, found):
    line = found["search_runs"].set_index("model").loc["resnet18"]
    visited, correct, shown = (known.store.array(line["run_id"], name) for name in ("visited", "correct", "shown"))
    assert line["accuracy"] == pytest.approx((correct / shown).mean(), abs=1e-12)
    at = np.lexsort((visited, correct / shown))[0]
    assert line["conditions"] == ", ".join(
        f"{name}: {value}" for name, value in DOMAIN.values(int(visited[at])).items()
    )
    assert line["lowest_shared"] == (correct / shown == (correct / shown).min()).sum()
    assert tuple(line[["lowest_low", "lowest_high"]]) == pytest.approx(wilson(int(correct[at]), 20), abs=1e-12)
    assert line["acceptance"] == 0.8
    assert line["hours"] == 1.0


def test_a_visit_without_images_counts_nowhere(found):
    values = found["search_values"].query("search == 'car, mobilenet' and attribute == 'time'")
    assert values["n_visited"].sum() == 39  # of 40 visits one had no accepted image


def test_a_rule_is_confirmed_by_fresh_images_that_differ(known, found):
    line = found["search_rules"].query("search == 'car, resnet18'").iloc[0]
    run = line["run_id"]
    rule, correct, shown = (known.store.array(run, f"fresh_{name}") for name in ("rule", "correct", "shown"))
    subdomain = known.store.array(run, "fresh_subdomain")
    sums = pd.DataFrame({"correct": correct, "shown": shown})[rule == 0].groupby(subdomain[rule == 0]).sum()
    assert len(set(sums["shown"])) > 1  # some were drawn twice: they have twice as many images, and more weight
    everything = np.zeros(len(sums), dtype=np.int64)
    correlation = image_correlation(sums["correct"].to_numpy(), sums["shown"].to_numpy(), everything)
    worth = sums["shown"] / (1 + (sums["shown"] - 1) * correlation)
    assert line["fresh"] == pytest.approx(np.average(sums["correct"] / sums["shown"], weights=worth), abs=1e-12)
    expected = share_with_interval(sums["correct"].to_numpy(), sums["shown"].to_numpy())
    assert tuple(line[["fresh", "fresh_low", "fresh_high"]]) == pytest.approx(expected, abs=1e-12)
    assert (line["rule"], line["n_visited"], line["n_subdomains"], line["fresh_images"]) == (RULE, 10, 10, 200)
    assert line["fresh_low"] < 0.31 < line["fresh_high"] < line["fresh_outside_low"]
    assert line["confirmed"] == "confirmed"


@pytest.mark.parametrize(
    ("correct", "rule", "verdict"), [(17, 0, "not confirmed"), (0, 0, "confirmed"), (0, 5, "not tested")]
)
def test_a_rule_is_judged_by_fresh_images_alone(lab, correct, rule, verdict):
    of = arrays_of(DOMAIN, SOME)
    inside = of["fresh_rule"] == 0
    replaced = {"fresh_correct": np.where(inside, correct, of["fresh_correct"]).astype(np.int32)}
    replaced["fresh_rule"] = np.where(inside, rule, -1).astype(np.int32)
    searched(lab, SOME, {**of, **replaced})
    assert tables(lab)["search_rules"]["confirmed"].tolist() == [verdict]


@pytest.mark.parametrize(
    ("inside", "outside", "verdict"),
    [(1, 5, "undecided"), (2, 3, "undecided"), (2, 4, "undecided"), (2, 5, "confirmed"), (5, 2, "confirmed")],
)
def test_a_rule_that_so_few_fresh_subdomains_could_never_confirm_is_undecided(lab, inside, outside, verdict):
    """None of 50 images inside and all 50 outside were "not confirmed" with 2 against 3 or 4, and with 5 against 2."""
    of = arrays_of(DOMAIN, SOME)
    has = members(DOMAIN, {"time": "night", "backdrop": "cluttered"})
    subdomain = np.concatenate([np.flatnonzero(has)[:inside], np.flatnonzero(~has)[:outside]])
    is_inside = np.arange(len(subdomain)) < inside
    of |= {"fresh_subdomain": subdomain.astype(np.int32), "fresh_rule": np.where(is_inside, 0, -1).astype(np.int32)}
    of |= {"fresh_correct": np.where(is_inside, 0, 50).astype(np.int32), "fresh_shown": np.full(len(subdomain), 50)}
    searched(lab, SOME, of)
    assert tables(lab)["search_rules"]["confirmed"].tolist() == [verdict]


@pytest.mark.parametrize(("images", "printed"), [((5, 50), "0 %"), ((20, 20), "0 % [0, 16]")])
def test_a_lowest_accuracy_of_several_has_an_interval_only_if_it_is_that_of_all(lab, images, printed):
    """With 0 of 5 and 0 of 50 that of the first, [0, 43], was printed for both: the other's is [0, 7]."""
    of = arrays_of(DOMAIN, SOME)
    of["correct"] = np.maximum(of["correct"], 1)
    of["correct"][:2], of["shown"][:2] = 0, images
    searched(lab, SOME, of)
    [table] = [table for table in FailureSearch(shown=1)(lab.store) if table.name == "search_runs"]
    assert table.frame["lowest_shared"].tolist() == [2]
    [sentence, *_] = finding.sentences(FailureSearch(), {table.name: table})
    assert f"accuracy is lowest, {printed}, for 2 of them, weather: " in sentence


def test_a_part_of_a_complete_search_is_compared_with_all_of_it(whole, found):
    values = found["search_values"].query("search == 'car, resnet18'")
    assert values["estimate"].unique().tolist() == ["visited", "bo", "bo model", "gp_pairwise", "gp_pairwise model"]
    of = values.pivot_table(index=["attribute", "value"], columns="estimate", values=["accuracy", "bias", "n_visited"])
    for estimate in ("bo", "gp_pairwise", "gp_pairwise model"):
        difference = of["accuracy"][estimate] - of["accuracy"]["visited"]
        np.testing.assert_allclose(of["bias"][estimate], difference, atol=1e-12)
    assert of["n_visited"]["gp_pairwise"].loc["time"].sum() == 15
    assert found["search_values"].query("search == 'car, mobilenet'")["estimate"].unique().tolist() == ["visited"]
    assert set(whole["search_values"]["estimate"]) == {"visited"}  # 300 visits would be all


def test_the_pair_with_the_strongest_joint_effect_is_shown_or_the_one_asked_for(known, found):
    assert set(found["search_pairs"]["attribute"] + found["search_pairs"]["other"]) == {"timebackdrop"}
    asked = tables(known, pair=["color", "weather"])["search_pairs"]
    assert set(asked["attribute"] + asked["other"]) == {"weathercolor"}
    with pytest.raises(FcaError, match=r"analysis\.pair = colour; allowed: weather, time, backdrop, color"):
        tables(known, pair=["colour", "weather"])


@pytest.mark.parametrize(
    ("second", "score", "cause"),
    [(1.0, 0.8, "classifier"), (0.0, 0.8, "condition"), (0.0, 0.1, "generator"), (0.0, np.nan, "undecided")],
)
def test_whose_failure_it_is_follows_from_the_second_classifier_and_the_filter(lab, second, score, cause):
    failing = np.array([values[1:3] == ("night", "cluttered") for values in DOMAIN.subdomains])
    right = np.where(failing, 0.0, 1.0)
    of = arrays_of(DOMAIN, np.arange(len(DOMAIN)), right=right, second=np.where(failing, second, 1.0))
    at = failing[of["visited"][of["image_visit"]]]
    of["image_score"] = np.where(at, score, 0.7 + 0.2 * np.random.default_rng(0).random(len(at))).astype(np.float32)
    searched(lab, np.arange(len(DOMAIN)), of)
    causes = tables(lab)["search_causes"]
    assert causes["cause"].tolist() == [cause] * 10
    assert causes["conditions"].str.contains(RULE).all()


def test_two_classifiers_agree_as_much_as_their_ranks(known, found):
    line = found["search_agreement"].query("compared == 'car, resnet18'").iloc[0]
    runs = found["search_runs"].set_index("search")["run_id"]
    of = []
    for name in ("car, mobilenet", "car, resnet18"):
        visited, correct, shown = (known.store.array(runs[name], part) for part in ("visited", "correct", "shown"))
        of.append(pd.Series(correct / np.where(shown > 0, shown, np.nan), visited).dropna())
    both = pd.concat(of, axis="columns", join="inner")
    assert line["n_visited"] == len(both) == 39
    assert line["rho"] == pytest.approx(stats.spearmanr(both[0], both[1]).statistic, abs=1e-12)
    assert found["search_agreement"]["compared"].tolist() == ["car, resnet18", "vit, on the same images"]


def test_pictures_of_each_kind_come_with_their_prompts(known, found):
    gallery = found["search_gallery"].query("search == 'car, resnet18'")
    assert gallery["kind"].value_counts().to_dict() == {"failure": 16, "success": 16, "rejected": 16}
    assert gallery["thumbnail"].str.startswith("data:image/png;base64,").all()
    assert gallery["prompt"].str.fullmatch(r"A \w+ car on a \w+ backdrop, during the \w+, it is \w+\.").all()


def test_the_order_of_rows_changes_nothing(whole, lab):
    of = arrays_of(DOMAIN, SOME, seed=4, second=None, refused=[0])
    searched(lab, SOME, of, model="mobilenet", second=None, skill=-0.1, run_id="000000000001")
    searched(lab, run_id="000000000000")
    for name, frame in tables(lab).items():
        pd.testing.assert_frame_equal(frame, whole[name])


def test_a_store_without_searches_says_what_makes_one(lab):
    with pytest.raises(FcaError, match=r"searches = none among the 0 stored rows; .* fca run task=search domain=dog"):
        FailureSearch()(lab.store)


HOSTILE = (
    ("domain", np.array(['{"attributes": ']), 'domain = {"attributes": ; allowed: a domain as a search wrote it'),
    ("domain", np.array(['{"attributes": {"a": 5}, "rules": []}']), "allowed: a domain as a search wrote it"),
    ("rules", np.array(["[3]"]), "arrays = rules"),
    ("visited", np.full(40, 1000, np.int32), "arrays = visited"),
    ("shown", np.zeros(40, np.int32), "arrays = none"),
    ("gallery_image", np.full(96, -1, np.int32), "arrays = gallery_image"),
)


def test_searches_with_hostile_arrays_are_left_out_and_the_others_stay(lab, caplog):
    good = searched(lab, SOME)
    of = arrays_of(DOMAIN, SOME)
    bad = [searched(lab, SOME, {**of, array: value}, model=f"net{at}") for at, (array, value, _) in enumerate(HOSTILE)]
    assert set(tables(lab)["search_runs"]["run_id"]) == {good}
    for run, (*_, message) in zip(bad, HOSTILE, strict=True):
        [line] = [line for line in caplog.messages if run in line]
        assert line.startswith(f"run {run} is left out: ")
        assert message in line


def test_searches_that_differ_in_the_seed_alone_have_names_of_their_own(lab):
    for seed in (0, 1):
        searched(lab, SOME, seed=seed)
    assert tables(lab)["search_runs"]["search"].tolist() == [
        "car, resnet18, gp_pairwise, 40 visited, seed 0",
        "car, resnet18, gp_pairwise, 40 visited, seed 1",
    ]


def test_sentences_name_the_conditions_and_what_is_wrong_with_the_search(made):
    text = "\n".join(finding.sentences(FailureSearch(), {table.name: table for table in made}))
    assert f"resnet18 recognises car in 31 % [22, 40] of images with {RULE}, and in 88 % where no rule holds; " in text
    assert "confirmed on 200 fresh images." in text
    assert "car, mobilenet: the model behind the policy predicts no better than the mean" in text
    assert "car, mobilenet: means of visited subdomains tend to be lower" in text
    assert "car, resnet18: means of visited" not in text
    assert "car, resnet18: a search of 15 subdomains by gp_pairwise" in text
    assert not any(word in text for word in ("nan", "None"))


def test_sentences_about_a_policy_without_model_do_not_judge_its_model(lab):
    searched(lab, policy="random", skill=None)
    made = FailureSearch(partial=15)(lab.store)
    assert "the model behind the policy" not in "".join(
        finding.sentences(FailureSearch(), {table.name: table for table in made})
    )


def test_a_domain_of_one_attribute_has_no_pairs(lab):
    domain = Domain({"weather": ["sunny", "raining", "snowing"]})
    arrays = arrays_of(domain, np.arange(3), right=np.array([0.9, 0.8, 0.1]))
    searched(lab, np.arange(3), arrays, n_subdomains=3)
    found = tables(lab)
    assert found["search_pairs"].empty
    assert len(found["search_values"]) == 3
