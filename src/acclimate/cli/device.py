"""From a run to a device: `export` writes a bundle, `adapt` predicts with one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from acclimate.cli.runs import DEFAULT_RUNS, NAMED, Runs, find

Plugins = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin", help="Code outside acclimate that may be imported, such as ./mine.py:Method (repeatable)."
    ),
]


def export(
    run: Annotated[str, typer.Argument(help=NAMED)],
    system: Annotated[str, typer.Argument(help="One of its systems.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write the bundle to.")],
    client: Annotated[int | None, typer.Option(help="Whose, where clients know different things.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of which seed; by default the first.")] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="Also write model.onnx, for methods without gradients.")] = False,
    plugin: Plugins = None,
    runs: Runs = DEFAULT_RUNS,
) -> None:
    """Take a system out of a run: model, knowledge and manifest, to be loaded with torch alone."""
    from acclimate.api import Run

    taken = Run.open(find(runs, run), runs, plugin or ())
    folder = taken.system(system).export(out, client=client, seed=seed, onnx=onnx)
    for file in sorted(folder.iterdir()):
        typer.echo(f"written: {file} ({file.stat().st_size:,} bytes)")


def adapt(
    bundle: Annotated[Path, typer.Argument(help="A bundle, as `export` writes it.")],
    images: Annotated[
        str, typer.Argument(help="A folder of images, a CSV file with a column path, or - for paths from stdin.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="CSV file to write predictions to.")],
    state: Annotated[Path | None, typer.Option(help="File in which the adapter's state is kept between calls.")] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Images per batch; by default as it was tested.")
    ] = None,
    plugin: Plugins = None,
) -> None:
    """Adapt to unlabelled images and predict them; run it again to go on where it stopped."""
    import sys

    from acclimate.device.predict import listed_images, predict_images

    done, total = predict_images(bundle, listed_images(images, sys.stdin), out, state, batch_size, plugin or ())
    typer.echo(f"written: {out} ({total} images, {done} of them now)")
