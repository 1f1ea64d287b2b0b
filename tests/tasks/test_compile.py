"""task=compile: the program that is shipped has the features of the network; a probe on it is exported as that file."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from fca.cli import export
from fca.cli.configure import load_model
from fca.models.compiled import Compiled
from fca.models.programs import Session, cost_of, encoder_program, with_head
from fca.store import Store, results
from fca.tasks.compile import with_every_depth
from fca.training.infer import features_of
from fca.training.speed import cost

WEIGHTS = ["model=efficientnet_lite0", "model.weights=package", "model.input_size=32"]
SIZE = 32  # pixels


@pytest.fixture(scope="module")
def encoder():
    model, depths = with_every_depth(load_model("efficientnet_lite0", weights="package", input_size=SIZE))
    assert depths == ("cut", "whole")
    return model


@pytest.fixture(scope="module")
def program(encoder):
    return encoder_program(encoder.build(), ["cut", "whole"])


@pytest.mark.wide
def test_a_program_has_the_features_of_the_network_at_every_depth(encoder, program):
    pixels = np.random.default_rng(0).integers(0, 256, (5, SIZE, SIZE, 3), dtype=np.uint8)
    expected = features_of(encoder.build(), pixels, np.arange(5), accelerator="cpu")
    found = Session(program).run(pixels, ["cut", "whole"])
    assert found.shape == (5, 320 + 1280)
    assert np.abs(found - expected).max() < 1e-3 * np.abs(expected).max()  # float32 sums in another order


def test_a_head_on_one_depth_is_a_linear_layer_and_leaves_out_what_others_need(program):
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (3, SIZE, SIZE, 3), dtype=np.uint8)
    weight, bias = rng.normal(size=(4, 320)), rng.normal(size=4)
    content = with_head(program, "cut", weight, bias)
    logits, probabilities = onnxruntime.InferenceSession(content).run(None, {"images": pixels})
    expected = Session(program).run(pixels, ["cut"]) @ weight.T + bias
    assert np.abs(logits - expected).max() < 1e-3
    assert np.abs(probabilities.sum(axis=1) - 1).max() < 1e-6
    assert len(program) - len(content) > 1280 * 320 * 4  # bytes of the widening layer, less those of the head


def test_operations_of_a_program_are_those_that_torch_counts(encoder, program):
    of_torch = cost(encoder.build())
    assert cost_of(program).flops == pytest.approx(of_torch.flops, rel=0.01)
    assert cost_of(program).params == pytest.approx(of_torch.params, rel=0.01)  # batch norms are part of convolutions


def test_a_convolution_whose_weights_are_computed_is_not_counted():
    """No constant has the shape of its kernel, so the number of its operations is unknown."""
    shapes = {"pixels": [1, 3, 8, 8], "kernel": [4, 3, 3, 3], "features": [1, 4, 6, 6]}
    values = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()}
    layer = helper.make_node("Conv", ["pixels", "kernel"], ["features"])
    graph = helper.make_graph([layer], "convolution", [values["pixels"], values["kernel"]], [values["features"]])
    assert cost_of(helper.make_model(graph).SerializeToString()).flops == 0


@pytest.mark.slow
def test_int8_is_probed_on_its_own_features_and_shipped_as_it_was_judged(fca, tmp_path):
    quiet = ["dataset=digits", "limit=12", "logger=none", "machine.workers=1", "machine.accelerator=cpu"]
    code, _, err = fca("task=compile", *WEIGHTS, "task.precision=int8", "task.calibration=8", *quiet)
    assert code == 0, err
    [in_fp32] = results(tmp_path / "outputs", "task == 'compile' and precision == 'fp32'")["run_id"]
    [row] = results(tmp_path / "outputs", "task == 'compile' and precision == 'int8'").to_dict("records")
    compiled = row["run_id"]
    assert row["parent"] == in_fp32, "int8 is made of the program in fp32"
    about = Compiled(str(tmp_path / "outputs"), compiled, "cut").description
    assert (about.precision, dict(about.widths)) == ("int8", {"cut": 320, "whole": 1280})

    of_program = ["model=compiled", f"model.run_id={compiled}", "model.depth=cut"]
    code, out, err = fca("task=train", "adaptation=probe", *of_program, *quiet)
    assert code == 0, err
    [row] = results(tmp_path / "outputs", "task == 'train'").to_dict("records")
    assert row["model"] == "tf_efficientnet_lite0 32 px cut int8"
    file = tmp_path / "net.onnx"
    code, out, err = fca(f"run={row['run_id']}", f"out={file}", f"outputs={tmp_path / 'outputs'}", door=export)
    assert code == 0, err
    assert "the same classes as the network" in out
    code, _, err = fca(f"run={row['run_id']}", "format=torchscript", f"outputs={tmp_path / 'outputs'}", door=export)
    assert (code, "onnx: the network of this run is an ONNX program" in err) == (2, True)

    store = Store(tmp_path / "outputs")
    [embedded] = results(store.outputs, "task == 'embed'")["run_id"]
    assert store.array(embedded, "features").shape[1] == 1600, "one pass gives every depth"


@pytest.mark.wide
def test_a_program_is_not_trained(fca, tmp_path):
    quiet = ["dataset=digits", "limit=12", "logger=none", "machine.workers=1", "machine.accelerator=cpu"]
    assert fca("task=compile", *WEIGHTS, *quiet)[0] == 0
    [compiled] = results(tmp_path / "outputs", "task == 'compile'")["run_id"]
    code, _, err = fca("task=train", "model=compiled", f"model.run_id={compiled}", *quiet)
    assert code == 2
    assert "adaptation=probe" in err


@pytest.mark.parametrize(
    ("words", "kind"), [(["model=hog"], "this has no layers"), (["model=pixels"], "this has no layers")]
)
def test_what_is_no_network_is_refused_before_any_run(fca, tmp_path, words, kind):
    code, _, errors = fca("task=compile", "dataset=digits", "logger=none", *words)
    assert code == 2
    assert kind in errors
    assert not (tmp_path / "outputs").exists()
