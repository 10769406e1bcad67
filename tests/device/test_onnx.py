"""Methods without gradients as ONNX graphs, run by onnxruntime."""

import numpy as np
import pytest
import torch

import acclimate as ac
import battery
from acclimate import trees
from acclimate.device.bundle import load
from acclimate.device.onnx import graph, write
from acclimate.errors import UnsupportedModel
from bundles import batch, exported

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

CASES = [
    ("none", {}),
    ("bn-adapt", {}),
    ("bn-adapt", {"prior": 0, "unbiased": False}),
    ("em", {}),
    ("bbse", {}),
    ("bbse", {"kind": "soft"}),
    ("t3a", {}),
    ("t3a", {"keep": 2}),
    ("btfl", {}),
]


@pytest.mark.parametrize(("name", "options"), CASES)
def test_onnx_answers_as_torch_does_over_a_stream_of_batches_of_all_sizes(name, options, tmp_path):
    adapted = exported(name, tmp_path / "b", **options)
    write(load(tmp_path / "b"), tmp_path / "b", battery.population().shape)
    session = onnxruntime.InferenceSession(tmp_path / "b" / "model.onnx", providers=["CPUExecutionProvider"])
    first = trees.load((tmp_path / "b" / "state.safetensors").read_bytes())
    state = {key: tensor.numpy() for key, tensor in first.items()}
    assert {one.name for one in session.get_inputs()} == {"images", *state}
    x = batch()
    for images in (x, x[:3], x.flip(0), x[:1], x):
        logits, *after = session.run(None, {"images": images.numpy(), **state})
        state = dict(zip(first, after, strict=True))
        torch.testing.assert_close(torch.from_numpy(logits), adapted(images), rtol=1e-3, atol=1e-4)
    now = {key: tensor for key, tensor in _flat(adapted.state()).items() if key in state}
    assert now.keys() == state.keys()
    for key, tensor in now.items():
        np.testing.assert_allclose(state[key], tensor.numpy(), rtol=1e-3, atol=1e-4)


def _flat(state):
    return state.get("moving") or {key: value for key, value in state.items() if isinstance(value, torch.Tensor)}


def test_onnx_of_a_method_with_gradients_says_so(tmp_path):
    with pytest.raises(
        UnsupportedModel, match=r"Tent takes gradients at test time.*these have one: BBSE, BNAdapt, BTFL"
    ):
        graph(exported("tent", tmp_path).adapter)
    with pytest.raises(UnsupportedModel, match="preset: code has no ONNX form"):
        graph(exported("btfl", tmp_path / "b", preset="code").adapter)


def test_onnx_is_exported_from_a_run(tmp_path):
    run = ac.run(battery.tiny(systems=["em"]), runs=tmp_path / "runs", workers=1, progress=False)
    folder = run.system("em").export(tmp_path / "b", onnx=True)
    assert {"model.onnx", "manifest.json", "state.safetensors"} <= {file.name for file in folder.iterdir()}
