"""A device's cold start, from a new process to the first logits of a bundle, beside importing torch; and its size.

Processor time of these processes, not the clock on the wall: other programs slow all sides, but do not count.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from acclimate import params
from acclimate.device import bundle
from acclimate.device.wrapping import chosen_adapter, method_of
from acclimate.experiment.catalog import MODELS
from acclimate.models.build import Build
from benchmarks.measure import MB, Line, interleave, ratio

SHAPE, MEAN, STD = (3, 32, 32), (0.5,) * 3, (0.25,) * 3
ADAPTED = "import acclimate as ac; adapted = ac.load({folder!r}); import torch; adapted(torch.rand(20, 3, 32, 32))"


def run(repeats: int = 5) -> list[Line]:
    lines = []
    for model in ("shallow-cnn", "resnet18"):
        with tempfile.TemporaryDirectory() as folder:
            written = _written(model, Path(folder) / "bundle")
            sides = {
                "bundle": lambda folder=folder: _process(ADAPTED.format(folder=f"{folder}/bundle")),
                "torch": lambda: _process("import torch"),
            }
            taken = interleave(sides, repeats, clock=_children)
            size = sum(file.stat().st_size for file in written.iterdir())
            best = min(taken["bundle"]), min(taken["torch"])
            seconds = f"first logits after {best[0]:.2f} s, importing torch takes {best[1]:.2f} s"
            print(f"{model} with bn-adapt: {size / MB:.2f} MB; {seconds}")
            what = f"{model}: a process to first logits / importing torch"
            lines.append(ratio(what, taken["bundle"], taken["torch"], None))
    return lines


def _written(model: str, folder: Path) -> Path:
    tensors = params.of(Build(MODELS[model].load(), 10, SHAPE, MEAN, STD)())
    chosen, knowledge = chosen_adapter("bn-adapt", {})
    problem = bundle.Problem({"name": model}, SHAPE, MEAN, STD)
    contents = bundle.Contents(method_of(chosen, knowledge), tensors, [str(k) for k in range(10)], problem)
    return bundle.write(folder, contents, {})


def _children() -> float:
    """Seconds of processor time that all ended child processes have taken."""
    times = os.times()
    return times.children_user + times.children_system


def _process(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


if __name__ == "__main__":
    for line in run():
        print(line)
