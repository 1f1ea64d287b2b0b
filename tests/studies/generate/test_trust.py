"""What files and words may not do to `fca generate`."""

import pytest

from fca.studies.generate.commands import generate
from fca.studies.generate.plan import Plan
from fca.types import FcaError

CALL = "{_target_: subprocess.call, args: [touch, made]}"


def test_a_generated_set_is_drawn_into_a_folder_of_its_own(fca, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "manifest.csv").write_text("path,label\n")
    code, _, err = fca("out=photos", "budget.images=3", "per_level=1", "workers=1", door=generate)
    assert (code, "Traceback" in err) == (2, False)
    assert "error: out = photos; allowed: a new or empty folder, or one that fca generate made" in err
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["manifest.csv"]
    code, _, err = fca("plan.name=../../x", door=generate)
    assert (code, "Traceback" in err) == (2, False)
    assert "error: plan.name = '../../x'; allowed: a plain name" in err


def test_a_plan_of_a_stranger_runs_nothing(fca, tmp_path):
    (tmp_path / "theirs" / "plan").mkdir(parents=True)
    text = f"# @package _global_\nplan: {{name: x}}\nhydra: {{callbacks: {{x: {CALL}}}}}\n"
    (tmp_path / "theirs" / "plan" / "theirs.yaml").write_text(text)
    code, _, err = fca(f"hydra.searchpath=[file://{tmp_path}/theirs]", "plan=theirs", door=generate)
    assert (code, "Traceback" in err) == (2, False)
    assert err.startswith(f"error: hydra.callbacks.x._target_ in {tmp_path}/theirs/plan/theirs.yaml = ")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("seed: !!python/object/apply:os.system ['touch made']\n", r"has the tag \S+os\.system"),
        (
            "a: &a [1, 2, 3, 4, 5, 6, 7, 8, 9]\n"
            + "".join(f"{n}: &{n} [{', '.join([f'*{o}'] * 9)}]\n" for o, n in zip("abcdefg", "bcdefgh", strict=True)),
            "values",
        ),
    ],
    ids=["a tag", "an alias bomb"],
)
def test_a_file_of_a_plan_is_read_with_the_same_care(text, reason, tmp_path):
    (tmp_path / "plan.yaml").write_text(text)
    with pytest.raises(FcaError, match=rf"plan.file = .*{reason}"):
        Plan("x", {}, {}, {}, 1, 0, str(tmp_path / "plan.yaml")).resolved()
