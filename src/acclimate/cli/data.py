"""`acclimate data`: what is here, what is missing, how to get it, how it looks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from acclimate.cli.printing import Commands, Json, print_rows
from acclimate.errors import AcclimateError
from acclimate.options import LARGEST_SEED

data = Commands(help="Data sets: what is here, what is missing, how to get it.", no_args_is_help=True)


@data.command()
def check(
    checksums: Annotated[bool, typer.Option("--checksums", help="Also compare the sums of the packs here.")] = False,
    as_json: Json = False,
) -> None:
    """What is here, what is missing, how to get it."""
    from acclimate.data.folders import data_folder

    rows = listed(checksums)
    if as_json:
        print_rows(rows, as_json)
        return
    typer.echo(f"data folder: {data_folder()} (ACCLIMATE_DATA); tried: whether its origin could be tried by us")
    shown = ("name", "state", "images", "shape", "size", "checksum", "tried", "origin")
    print_rows([{key: row[key] for key in shown} for row in rows], as_json)


@data.command()
def convert(
    name: Annotated[str, typer.Argument(help="A data set of 'acclimate data check'.")],
    folder: Annotated[Path, typer.Argument(help="Where the files are that its authors publish.")],
) -> None:
    """Make the pack of a data set from its published files."""
    from acclimate.data.convert import convert

    typer.echo(f"written: {convert(name, folder)}")


@data.command()
def get(name: Annotated[str, typer.Argument(help="A data set of 'acclimate data check'.")]) -> None:
    """Download a data set from the Hugging Face hub and make its pack (uses the network; needs the extra 'hub')."""
    from acclimate.data.convert import get

    typer.echo(f"written: {get(name)}")


@data.command()
def preview(
    out: Annotated[Path, typer.Argument(help="The PNG file to write.")] = Path("corruptions.png"),
    name: Annotated[str, typer.Option("--data", help="A data set of 'acclimate data check'.")] = "digits",
    images: Annotated[int, typer.Option(min=1, max=8, help="How many images, side by side.")] = 1,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED)] = 0,
) -> None:
    """Draw all corruptions at all severities on one sheet."""
    if out.exists():
        raise AcclimateError(f"{out} exists already and is not overwritten; choose another name, or remove it")
    if out.suffix.lower() != ".png":
        raise AcclimateError(f"{out}: expected a name that ends in .png")
    import torch

    from acclimate.data import sources
    from acclimate.data.corruptions.sheet import contact_sheet

    dataset = sources.load(name)
    contact_sheet(dataset.images.bytes(torch.arange(images)), seed).save(out)
    typer.echo(f"written to {out}")


def listed(checksums: bool = False) -> list[dict[str, Any]]:
    """The state of every data set."""
    from acclimate.data.sources import SOURCES, status

    return [status(name, checksums=checksums) for name in SOURCES]
