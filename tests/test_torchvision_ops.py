import subprocess
import sys

import pytest
import torch

from fca.torchvision_ops import declare_torchvision_ops

pytestmark = pytest.mark.slow  # imports torch in processes of their own


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.skipif(torch.version.cuda is not None, reason="a CUDA build of torch loads torchvision's operators")
def test_torchvision_still_needs_help_beside_a_cpu_build_of_torch():
    """The day this fails, fca/torchvision_ops.py and its calls may go."""
    process = run("import torchvision")
    assert process.returncode == 1
    assert "operator torchvision::nms does not exist" in process.stderr


def test_with_the_declarations_torchvision_and_timm_import():
    process = run("import fca.torchvision_ops as o; o.declare_torchvision_ops(); import torchvision.models, timm")
    assert process.returncode == 0, process.stderr


def test_declaring_twice_is_declaring_once():
    assert declare_torchvision_ops() is declare_torchvision_ops()


def test_a_training_imports_no_metrics_of_text_and_audio_and_no_plots():
    process = run(
        "import fca.training.loop, sys, torchmetrics, importlib.metadata as m; m.version('scipy')\n"
        "print({'transformers', 'matplotlib', 'scipy.signal'} & set(sys.modules), torchmetrics.Metric.__name__)"
    )
    assert process.stdout == "set() Metric\n", process.stderr


def test_what_predicts_imports_no_lightning():
    code = "import fca.tasks.predict, fca.training.infer, fca.models.timm_models, fca.cli.run, sys\n"
    code += "fca.models.timm_models._timm()\nprint({'pytorch_lightning', 'torchmetrics'} & set(sys.modules))"
    process = run(code)
    assert process.stdout == "set()\n", process.stderr
