"""`fca report`: what it prints beside the page."""

import pytest

from fca.cli import report
from fca.cli.report import write_report
from fca.store import Store
from fca.subset import draw_subset
from tests.support.lab import Lab


@pytest.fixture
def lab(tmp_path):
    """A store with features, and with one training."""
    lab = Lab(Store(tmp_path / "outputs"))
    lab.embed("net", lab.features(0))
    lab.train("quick", draw_subset(6, 2, 0), 0.5, recipe_epochs=10)
    return lab


@pytest.mark.slow
def test_runs_that_do_not_belong_together_are_named_with_the_filter_that_chooses_among_them(fca, lab):
    words = ("report.analyses=[similarity,few_class]", "logger=none")
    code, out, err = fca(*words, door=report)
    assert (code, "missing" in out) == (0, False), err
    lab.train("quick", draw_subset(6, 2, 1), 0.5, recipe_epochs=5)
    code, out, _ = fca(*words, door=report)
    assert code == 0
    assert "some answers are missing: recipe_epochs of the rows read = 10, 5" in out
    assert "keep one, e.g. recipe_epochs=10" in out
    code, out, _ = fca(*words, "recipe_epochs=10", door=report)
    assert (code, "missing" in out) == (0, False)


@pytest.mark.slow
def test_a_page_of_the_same_runs_keys_and_code_is_left_and_any_other_is_drawn(lab, monkeypatch):
    monkeypatch.setattr("fca.cli.report.provenance", lambda: {"commit": "0123456", "host": "here", "versions": "1"})

    def written(**keys):
        page = write_report("few_class", lab.store.outputs, analyses=["few_class"], **keys)
        return page, page.stat().st_mtime_ns

    page, first = written()
    assert written()[1] == first
    (page.parent / "tables" / "runs.csv").unlink()
    second = written()[1]
    assert second > first, "a part of the page was missing"
    third = written(title="Other words")[1]
    assert third > second
    lab.train("quick", draw_subset(6, 2, 1), 0.5, recipe_epochs=10)
    fourth = written(title="Other words")[1]
    assert fourth > third, "one more run"
    assert written(title="Other words")[1] == fourth
    monkeypatch.setattr("fca.cli.report.provenance", lambda: {"commit": "0123456-dirty"})
    assert written(title="Other words")[1] > fourth, "unfinished code"
