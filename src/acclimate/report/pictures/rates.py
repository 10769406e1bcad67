"""ATP's rates by block and by kind of module; several runs stand side by side."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from acclimate.report.differing import labels
from acclimate.report.pictures.look import colour
from acclimate.report.pictures.picture import Asked, Picture, Spec, source
from acclimate.store.run import Run

HEADING = "How fast each part should adapt (ATP)"
LEAD = (
    "ATP learns a rate for every tensor of the network. Where it is near zero that part should stay as it is; where it "
    "is large it should follow the new images; a negative rate moves it away from them."
)
KINDS = ("conv/linear weight", "bias", "norm weight", "norm bias", "running mean", "running variance", "other")

Rates = Mapping[str, float]  # by module


class Bar(NamedTuple):
    """The mean over the modules of a group, and its deviation over seeds."""

    mean: float
    deviation: float


def has(run: Run) -> bool:
    return bool(run.rates())


def draw(runs: Sequence[Run], asked: Asked) -> Iterator[Picture]:
    names, by_block, by_kind = [], [], []
    for label, run in zip(labels(runs), runs, strict=True):
        shared = together(run.rates())
        for systems, seeds in shared.items():
            several = (label, len(runs) > 1), (", ".join(systems), len(shared) > 1 or len(runs) == 1)
            names.append(", ".join(name for name, tells in several if tells))
            by_block.append(grouped(seeds, blocks_of(seeds[0], run.blocks(systems[0]))))
            by_kind.append(grouped(seeds, kinds_of(seeds[0])))
    notes = [f"{source(*runs)}. A bar is the mean over its modules and all seeds."]
    if any(len(seeds) > 1 for run in runs for seeds in run.rates().values()):
        notes.append("Whiskers: standard deviation over seeds.")
    blocks = list(dict.fromkeys(chain.from_iterable(by_block)))
    panels = [
        _panel("by block", names, by_block, blocks),
        _panel("by kind of module", names, by_kind, KINDS),
    ]
    name = f"rates{'-compared' if len(runs) > 1 else ''}"
    yield Picture(
        runs[0].name, name, "Adaptation rates learnt by ATP", tuple(notes), {"hconcat": panels, "spacing": 34}
    )


def together(rates: Mapping[str, Sequence[Rates]]) -> dict[tuple[str, ...], Sequence[Rates]]:
    """Systems that share their rates are one."""
    found: dict[str, list[str]] = defaultdict(list)
    for system, each in rates.items():
        found[repr(each)].append(system)
    return {tuple(systems): rates[systems[0]] for systems in found.values()}


def blocks_of(modules: Iterable[str], blocks: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The block of every module. Statistics of a norm are where its scale is, or, without one, where they follow.

    >>> blocks_of(["0.weight", "1.running_mean", "1.weight"], {"0": ["0.weight"], "late": ["1.weight"]})
    {'0.weight': '0', '1.running_mean': 'late', '1.weight': 'late'}
    """
    of = {name: block for block, names in blocks.items() for name in names}
    found, current = {}, next(iter(blocks))
    for module in modules:
        current = of.get(module) or of.get(f"{module.rpartition('.')[0]}.weight", current)
        found[module] = current
    return found


def kinds_of(modules: Iterable[str]) -> dict[str, str]:
    """What every module is, by its name: a norm has statistics, or is called bn1, norm2 and the like.

    >>> kinds_of(["conv1.weight", "bn1.weight", "head.bias"])
    {'conv1.weight': 'conv/linear weight', 'bn1.weight': 'norm weight', 'head.bias': 'bias'}
    """
    names = list(modules)
    norms = {name.removesuffix(".running_mean") for name in names if name.endswith(".running_mean")}
    found = {}
    for name in names:
        owner, _, last = name.rpartition(".")
        norm = owner in norms or re.search(r"(^|[._])(bn|gn|ln|norm)\d*$", owner) is not None
        plain = {"weight": KINDS[2 * norm], "bias": KINDS[2 * norm + 1]}
        found[name] = {**plain, "running_mean": KINDS[4], "running_var": KINDS[5]}.get(last, KINDS[6])
    return found


def grouped(seeds: Sequence[Rates], group: Mapping[str, str]) -> dict[str, Bar]:
    """The mean rate of each group of modules: its mean and standard deviation (0 of one) over seeds."""
    members: dict[str, list[str]] = defaultdict(list)
    for module, name in group.items():
        members[name].append(module)
    means = {
        name: [statistics.fmean(rates[module] for module in modules) for rates in seeds]
        for name, modules in members.items()
    }
    return {k: Bar(statistics.fmean(v), statistics.stdev(v) if len(v) > 1 else 0.0) for k, v in means.items()}


def _panel(title: str, names: Sequence[str], found: Sequence[Mapping[str, Bar]], order: Sequence[str]) -> Spec:
    rows = [
        {"s": name, "x": group, "y": of[group].mean, "l": bar.mean - bar.deviation, "h": bar.mean + bar.deviation}
        for name, of in zip(names, found, strict=True)
        for group in order
        if (bar := of.get(group))
    ]
    there = [group for group in order if any(row["x"] == group for row in rows)]
    x = {"field": "x", "type": "nominal", "title": None, "sort": there, "axis": {"labelAngle": -40},
         "scale": {"paddingInner": 0.25}}  # fmt: skip
    offset = {"xOffset": {"field": "s", "sort": list(names)}} if len(names) > 1 else {}
    hue = {**colour(names), "legend": {"title": None, "symbolType": "square"}}  # the same in both panels: drawn once
    tips = [
        {"field": "s", "title": "of"},
        {"field": "x", "title": "part"},
        {"field": "y", "title": "rate", "format": ".4f"},
    ]
    bars: Spec = {
        "mark": {"type": "bar", "strokeWidth": 0},
        "encoding": {
            "x": x,
            "y": {"field": "y", "type": "quantitative", "title": "mean rate"},
            **offset,
            **({"color": hue} if len(names) > 1 else {}),
            "tooltip": tips,
        },
    }
    whiskers: Spec = {
        "transform": [{"filter": "datum.h > datum.l"}],
        "mark": {"type": "rule", "strokeWidth": 1.2},
        "encoding": {"x": x, **offset, "y": {"field": "l", "type": "quantitative"}, "y2": {"field": "h"}},
    }
    zero: Spec = {"mark": "rule", "encoding": {"y": {"datum": 0}}}
    width = max(240, len(there) * max(34, 11 * len(names) + 14))
    layers = [bars, whiskers, zero]
    return {
        "title": {"text": title, "fontSize": 13},
        "width": width,
        "height": 260,
        "data": {"values": rows},
        "layer": layers,
    }
