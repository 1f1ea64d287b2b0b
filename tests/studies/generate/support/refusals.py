"""Wrong command lines about this study, for tests/cli/test_refusals.py."""

from fca.studies.generate.generators.openai_api import OpenAIChat
from fca.studies.generate.generators.rendered import RenderedGenerator
from fca.studies.generate.plan import Plan
from fca.studies.generate.roots import BudgetConfig, GenerateConfig
from tests.support.refused_values import refused_values

REFUSED_WORKERS = refused_values(GenerateConfig, "workers")[0].typed
VALUES = {
    "generate": {
        "generator": ["nosuch", "null"],
        "generator.size": ["big"],
        "plan.seed": ["x"],
        "plan.file": ["nosuch.yaml", "empty"],
        "per_level": ["1.5", "9" * 20],
        "budget.images": ["x"],
        "budget.money": ["nan", "inf"],
        "dry": ["perhaps"],
        "out": ["file.txt", "dangling", "/dev/null", ""],
    },
}
DECLARED = {
    "generate": {
        GenerateConfig: ["per_level", "workers"],
        RenderedGenerator: ["generator.size"],
        Plan: ["plan.seed", "plan.per_level"],
        BudgetConfig: ["budget.images", "budget.money"],
    },
    "generate writer=openai": {OpenAIChat: ["writer.call_price"]},
}
LINES = {
    "generate +foo=1": "key = foo; allowed: generator, plan",
    "generate budget.time=1": "key = budget.time; allowed: images, money",
    "generate plan.name=../x": "plan.name = '../x'",
    "generate generator=sdxl_turbo": "descriptions of airplane, color = none",
}
AS_PROCESSES = (f"generate 'workers={REFUSED_WORKERS}'",)
