"""Names of classes that a file of an earlier version has are refused with their new home."""

import pytest

from fca.plugins import class_of
from fca.types import FcaError

MOVED = {
    "fca.generation.diffusion.Diffusion": "fca.studies.generate.generators.diffusion.Diffusion",
    "fca.generation.domain.EvaluationDomain": "fca.studies.generate.domain.EvaluationDomain",
    "fca.generation.filters.PromptFilter": "fca.studies.generate.filters.PromptFilter",
    "fca.generation.masks.ClipSeg": "fca.studies.generate.segmenters.ClipSeg",
    "fca.generation.openai_api.OpenAIChat": "fca.studies.generate.generators.openai_api.OpenAIChat",
    "fca.generation.rendered.RenderedGenerator": "fca.studies.generate.generators.rendered.RenderedGenerator",
    "fca.shifts.ablation.Ablations": "fca.studies.reliance.ablation.Ablations",
    "fca.studies.adaptive.replay.AdaptiveReplay": "fca.studies.adaptive.adaptive_replay.AdaptiveReplay",
    "fca.tasks.adaptation.remedies.Remedy": "fca.studies.reliance.remedies.Remedy",
    "fca.tasks.adaptive.AdaptiveTest": "fca.studies.adaptive.task.AdaptiveTest",
    "fca.tasks.generate.plan.Plan": "fca.studies.generate.plan.Plan",
    "fca.tasks.learning_curve.LearningCurve": "fca.studies.recommend.tasks.learning_curve.LearningCurve",
    "fca.tasks.on_demand.OnDemand": "fca.studies.generate.on_demand.OnDemand",
    "fca.tasks.saliency.Saliency": "fca.studies.reliance.saliency.Saliency",
    "fca.tasks.search.Search": "fca.studies.search.task.Search",
}


@pytest.mark.parametrize("name", MOVED)
def test_a_class_that_moved_is_refused_with_its_new_home(name):
    with pytest.raises(FcaError) as refused:
        class_of("task._target_", name)
    what, value, _, step = refused.value.args
    assert (what, value, step) == ("task._target_", name, f"did you mean {MOVED[name]}?")
    new_home = class_of("task._target_", MOVED[name])
    assert new_home.__qualname__ == name.rpartition(".")[2]


def test_a_class_that_never_was_has_no_home():
    with pytest.raises(FcaError, match="next: correct the module"):
        class_of("task._target_", "fca.tasks.nosuch.Nosuch")


def test_a_module_of_ours_that_fails_is_not_offered_again(monkeypatch):
    monkeypatch.setattr("fca.plugins.import_module", lambda name: exec("import no_such_library"))
    with pytest.raises(FcaError, match=r"No module named 'no_such_library'.*next: correct the module"):
        class_of("model._target_", "fca.models.own.OwnEmbedding")
