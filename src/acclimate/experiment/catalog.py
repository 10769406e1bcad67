"""Every name a user can write, in explicit tables. The only place with name strings.

Targets are imported when they are used, so that `acclimate --help` and `list` need no torch.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True)
class Entry:
    """A method, scenario or model: where its class is, and a line about it."""

    target: str  # module:class
    summary: str
    paper: str = ""
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # what `tune: true` tries
    # What examples an adapter takes; one that makes augmented copies: images, or pictures (float32, grey or in colour).
    takes: Literal["anything", "images", "pictures"] = "anything"

    @property
    def file(self) -> str:
        """The name of its file; the halves of a method have the same in several rooms."""
        return self.target.partition(":")[0].rpartition(".")[2]

    def load(self) -> Any:
        """The class itself."""
        module, _, name = self.target.partition(":")
        return getattr(importlib.import_module(module), name)


TRAINING = {
    "fedavg": Entry("acclimate.training.fedavg:FedAvg", "average the clients' models", "McMahan et al., AISTATS 2017"),
    "fedprox": Entry(
        "acclimate.training.fedprox:FedProx",
        "FedAvg with clients held near the server's model",
        "Li et al., MLSys 2020",
    ),
    "fedavgm": Entry("acclimate.training.fedavgm:FedAvgM", "FedAvg with momentum on the server", "Hsu et al., 2019"),
    "scaffold": Entry(
        "acclimate.training.scaffold:Scaffold",
        "correct local gradients for client drift",
        "Karimireddy et al., ICML 2020",
    ),
    "fedper": Entry("acclimate.training.fedper:FedPer", "keep the head on the client", "Arivazhagan et al., 2019"),
    "fedrep": Entry(
        "acclimate.training.fedrep:FedRep",
        "train the head, which stays, and then the body",
        "Collins et al., ICML 2021",
    ),
    "fedrod": Entry(
        "acclimate.training.fedrod:FedRoD",
        "a generic model and a personal head beside its own",
        "Chen & Chao, ICLR 2022",
    ),
    "fedbn": Entry("acclimate.training.fedbn:FedBN", "keep normalisation layers on the client", "Li et al., ICLR 2021"),
    "fedtta": Entry(
        "acclimate.training.fedtta:FedTTA",
        "a model and a loss without labels, trained together",
        "Ye et al., SDM 2024",
    ),
    "fedtta-prox": Entry(
        "acclimate.training.fedtta_prox:FedTTAProx",
        "FedTTA whose base model stays general",
        "Ye et al., SDM 2024",
    ),
    "afl": Entry("acclimate.training.afl:AFL", "the worst mixture of clients counts", "Mohri et al., ICML 2019"),
    "fedgma": Entry(
        "acclimate.training.fedgma:FedGMA",
        "follow updates where clients agree on their sign",
        "Tenison et al., 2022",
    ),
    "fedadg": Entry(
        "acclimate.training.fedadg:FedADG",
        "features drawn to a reference that a generator learns",
        "Zhang et al., 2021",
    ),
    "fedsr": Entry(
        "acclimate.training.fedsr:FedSR",
        "a noisy representation, short and telling no more than the class",
        "Nguyen et al., NeurIPS 2022",
    ),
    "pfl-sampled": Entry(
        "acclimate.training.pfl_sampled:PFLSampled",
        "FedPer; new clients get the head of somebody who trained",
        "Ye et al., SDM 2024",
    ),
    "pfl-ensemble": Entry(
        "acclimate.training.pfl_ensemble:PFLEnsemble",
        "FedPer; new clients get the heads of all who trained",
        "Ye et al., SDM 2024",
    ),
    "odpfl-hn": Entry(
        "acclimate.training.odpfl_hn:ODPFLHN",
        "a hypernetwork makes a model from a client's images",
        "Amosy et al., 2021",
    ),
    "fedmd": Entry(
        "acclimate.training.fedmd:FedMD",
        "models of any size learn from each other's logits on public images",
        "Li & Wang, 2019",
    ),
    "hetero-fedtta": Entry(
        "acclimate.training.hetero_fedtta:HeteroFedTTA",
        "FedTTA for models of any size, distilled on public images",
        "Ye et al., SDM 2024",
    ),
    "btfl": Entry(
        "acclimate.training.btfl:BTFL", "FedAvg, and a personal head for each client", "Zhou & Liu, KDD 2025"
    ),
    "fedthe": Entry(
        "acclimate.training.fedthe:FedTHE",
        "a model for balanced classes, and a personal head for each client",
        "Jiang & Lin, ICLR 2023",
    ),
    "finetune": Entry(
        "acclimate.training.finetune:FineTune", "go on training on every client alone: FedAvg+FT", "Yu et al., 2020"
    ),
    "atp-joint": Entry(
        "acclimate.training.atp_joint:ATPJoint",
        "the model and ATP's rates in the same rounds",
        "Bao et al., NeurIPS 2023",
    ),
    "ttt": Entry("acclimate.training.ttt:TTT", "FedAvg of classes and rotations together", "Sun et al., ICML 2020"),
    "fedicon": Entry(
        "acclimate.training.fedicon:FedICON",
        "average encoders trained by contrast; the head comes later",
        "Tan et al., FLData-Mining at KDD 2023",
    ),
    "head": Entry(
        "acclimate.training.head:Head",
        "average heads trained on the model as it is",
        "Tan et al., FLData-Mining at KDD 2023",
    ),
    "local": Entry("acclimate.training.local:Local", "another phase, without sharing: every client alone"),
    "q-ffl": Entry("acclimate.training.qffl:QFFL", "give clients with high loss more say", "Li et al., ICLR 2020"),
    "median": Entry(
        "acclimate.training.robust:Median", "the median of each number instead of the mean", "Yin et al., ICML 2018"
    ),
    "trimmed": Entry(
        "acclimate.training.robust:Trimmed", "of each number the extremes do not count", "Yin et al., ICML 2018"
    ),
    "clipped": Entry(
        "acclimate.training.robust:Clipped", "nobody moves further than half of the clients", "Sun et al., 2019"
    ),
    "krum": Entry(
        "acclimate.training.robust:Krum",
        "the one nearest to its neighbours stands for all",
        "Blanchard et al., NeurIPS 2017",
    ),
    "multi-krum": Entry(
        "acclimate.training.robust:MultiKrum",
        "only those nearest to their neighbours count",
        "Blanchard et al., NeurIPS 2017",
    ),
    "reputation": Entry(
        "acclimate.training.robust:Reputation",
        "who has agreed with everybody so far counts more",
        "Xu & Lyu, FL-ICML 2021",
    ),
    "private": Entry(
        "acclimate.training.private:Private",
        "replies clipped on the client, and hidden by noise there",
        "Balle & Wang, ICML 2018",
    ),
}

CALIBRATION = {
    "atp": Entry("acclimate.calibration.atp:ATP", "one adaptation rate per module", "Bao et al., NeurIPS 2023"),
    "bbse": Entry(
        "acclimate.calibration.bbse:BBSE",
        "the confusion matrix on source validation data",
        "Lipton et al., ICML 2018",
    ),
    "btfl-densities": Entry(
        "acclimate.calibration.btfl:BTFL",
        "densities of discretised features and average entropies",
        "Zhou & Liu, KDD 2025",
    ),
    "eata": Entry(
        "acclimate.calibration.eata:EATA",
        "the Fisher information of scales and shifts on source validation data",
        "Niu et al., ICML 2022",
    ),
    "fedthe-means": Entry(
        "acclimate.calibration.fedthe:FedTHE",
        "mean features of each client and of all",
        "Jiang & Lin, ICLR 2023",
    ),
    "fixed-rates": Entry(
        "acclimate.calibration.fixed_rates:FixedRates",
        "one adaptation rate for some modules, chosen by hand",
        "Bao et al., NeurIPS 2023",
    ),
    "guard": Entry(
        "acclimate.calibration.guard:Guard",
        "which signals tell harm from help, for one adapter, on streams played with source validation data",
    ),
    "knn-per": Entry(
        "acclimate.calibration.knn_per:KNNPer",
        "a memory of each client's training features",
        "Marfoq et al., ICML 2022",
    ),
    "surgical": Entry(
        "acclimate.calibration.surgical:Surgical",
        "the block and the rate whose step helps most on source validation data",
        "Lee et al., ICLR 2023",
    ),
}

ADAPTERS = {
    "atp": Entry("acclimate.adapters.atp:ATP", "move every module at its own learnt rate", "Bao et al., NeurIPS 2023"),
    "none": Entry("acclimate.adapters.none:NoAdaptation", "the model as it was trained"),
    "bn-adapt": Entry(
        "acclimate.adapters.bn_adapt:BNAdapt",
        "mix the statistics of batch norms with the batch's",
        "Schneider et al., NeurIPS 2020",
        grid={"prior": [0, 4, 16, 64, 256]},
    ),
    "tent": Entry(
        "acclimate.adapters.tent:Tent",
        "minimise entropy over scales and shifts",
        "Wang et al., ICLR 2021",
        grid={"lr": [1e-4, 1e-3, 1e-2]},
    ),
    "em": Entry(
        "acclimate.adapters.em:EM",
        "estimate the label distribution by EM",
        "Saerens et al., Neural Computation 2002",
        grid={"iterations": [1, 2, 5, 20]},
    ),
    "bbse": Entry(
        "acclimate.adapters.bbse:BBSE",
        "estimate the label distribution by the confusion matrix",
        "Lipton et al., ICML 2018",
        grid={"kind": ["hard", "soft"], "smoothing": [1e-3, 1e-2, 1e-1]},
    ),
    "t3a": Entry(
        "acclimate.adapters.t3a:T3A",
        "prototypes of confident features instead of the head",
        "Iwasawa & Matsuo, NeurIPS 2021",
        grid={"keep": [5, 20, 100, None]},
    ),
    "shot": Entry(
        "acclimate.adapters.shot:SHOT",
        "train all but the head for sure and diverse predictions",
        "Liang et al., ICML 2020",
        grid={"lr": [1e-4, 1e-3, 1e-2], "beta": [0.0, 0.3]},
    ),
    "memo": Entry(
        "acclimate.adapters.memo:MEMO",
        "one step per image towards agreement of its augmented copies",
        "Zhang et al., NeurIPS 2022",
        grid={"lr": [1e-3, 5e-3, 2e-2, 1e-1]},
        takes="images",
    ),
    "eata": Entry(
        "acclimate.adapters.eata:EATA",
        "Tent on reliable, new images, held near the source",
        "Niu et al., ICML 2022",
        grid={"lr": [2.5e-4, 5e-3], "redundancy": [0.05, 0.4], "fisher_weight": [1.0, 2000.0]},
    ),
    "fedicon": Entry(
        "acclimate.adapters.fedicon:FedICON",
        "tune all but the head by contrast of augmented views",
        "Tan et al., FLData-Mining at KDD 2023",
        grid={"lr": [1e-4, 1e-3, 1e-2], "epochs": [1, 5]},
        takes="pictures",
    ),
    "surgical": Entry(
        "acclimate.adapters.surgical:Surgical",
        "one entropy step on the block, at the rate, chosen on source data",
        "Lee et al., ICLR 2023",
    ),
    "tta-grad": Entry(
        "acclimate.adapters.tta_grad:TTAGrad",
        "entropy steps, shared and mixed before the prediction",
        "Zhang et al., KDD 2024",
        grid={"lr": [1e-4, 1e-3, 1e-2], "trains": ["affine", "all"]},
    ),
    "fedtta": Entry("acclimate.adapters.fedtta:FedTTA", "one step down a learnt loss", "Ye et al., SDM 2024"),
    "fedtta++": Entry(
        "acclimate.adapters.fedtta_pp:FedTTAPlusPlus",
        "steps down a learnt loss, stopped early by entropy",
        "Ye et al., SDM 2024",
        grid={"patience": [1, 3, 5]},
    ),
    "tent-upfl": Entry(
        "acclimate.adapters.tent_upfl:TentUPFL",
        "one entropy step on everything, over the whole client",
        "Ye et al., SDM 2024",
        grid={"lr": [0.01, 0.03, 0.1, 0.3]},
    ),
    "pfl-ensemble": Entry(
        "acclimate.adapters.pfl_ensemble:PFLEnsemble",
        "the mean prediction of all heads",
        "Ye et al., SDM 2024",
    ),
    "btfl": Entry(
        "acclimate.adapters.btfl:BTFL",
        "mix a personal and the global head by a Bayesian chance of external data",
        "Zhou & Liu, KDD 2025",
        grid={"lam": [5.0, 10.0, 16.0, 20.0]},
    ),
    "fedthe": Entry(
        "acclimate.adapters.fedthe:FedTHE",
        "learn the weights of a personal and the global head for each image",
        "Jiang & Lin, ICLR 2023",
        grid={"lr": [0.01, 0.1], "steps": [6, 20]},
    ),
    "knn-per": Entry(
        "acclimate.adapters.knn_per:KNNPer",
        "ask the nearest training images of the client too",
        "Marfoq et al., ICML 2022",
        grid={"share": [None, 0.1, 0.5, 0.9]},
    ),
    "ttt": Entry(
        "acclimate.adapters.ttt:TTT",
        "train all but the head to tell rotations, on every batch",
        "Sun et al., ICML 2020",
        grid={"lr": [1e-4, 1e-3, 1e-2]},
        takes="images",
    ),
    "guard": Entry(
        "acclimate.adapters.guard:Guard",
        "another adapter, watched without labels: the source model answers where it seems to do harm",
    ),
}

AGGREGATORS = {
    "local": Entry("acclimate.aggregators.local:Local", "everybody keeps its own (not the same as no aggregator)"),
    "fedavg": Entry("acclimate.aggregators.fedavg:FedAvg", "the mean of all uploads", "McMahan et al., AISTATS 2017"),
    "fedamp": Entry(
        "acclimate.aggregators.fedamp:FedAMP",
        "similar clients attend to each other",
        "Huang et al., AAAI 2021",
    ),
    "fedavgm": Entry("acclimate.aggregators.fedavgm:FedAvgM", "the mean, with momentum", "Hsu et al., 2019"),
    "pfedgraph": Entry(
        "acclimate.aggregators.pfedgraph:PFedGraph",
        "a collaboration graph by the angles of updates",
        "Ye et al., ICML 2023",
    ),
    "ldawa": Entry(
        "acclimate.aggregators.ldawa:LDAWA",
        "weigh each layer by its angle to the global model",
        "Rehman et al., ICCV 2023",
    ),
    "tsa": Entry(
        "acclimate.aggregators.tsa:TSA",
        "attention over time and clients, on signatures",
        "Zhang et al., KDD 2024",
    ),
    "median": Entry(
        "acclimate.aggregators.robust:Median", "the median of each number instead of the mean", "Yin et al., ICML 2018"
    ),
    "trimmed": Entry(
        "acclimate.aggregators.robust:Trimmed", "of each number the extremes do not count", "Yin et al., ICML 2018"
    ),
    "clipped": Entry(
        "acclimate.aggregators.robust:Clipped", "nobody moves further than half of the clients", "Sun et al., 2019"
    ),
    "krum": Entry(
        "acclimate.aggregators.robust:Krum",
        "the one nearest to its neighbours stands for all",
        "Blanchard et al., NeurIPS 2017",
    ),
    "multi-krum": Entry(
        "acclimate.aggregators.robust:MultiKrum",
        "only those nearest to their neighbours count",
        "Blanchard et al., NeurIPS 2017",
    ),
    "reputation": Entry(
        "acclimate.aggregators.robust:Reputation",
        "who has agreed with everybody so far counts more",
        "Xu & Lyu, FL-ICML 2021",
    ),
}

TERMS = {
    "fedprox": Entry("acclimate.terms:Proximal", "hold a client near the model it was sent", "Li et al., MLSys 2020"),
    "moon": Entry(
        "acclimate.terms:Contrast",
        "features like the model sent, unlike the one sent back last",
        "Li et al., CVPR 2021",
    ),
    "pfedsd": Entry(
        "acclimate.terms:SelfDistillation",
        "predictions like those of the model sent back last",
        "Jin et al., TPDS 2022",
    ),
}

SCENARIOS = {
    "twofold": Entry("acclimate.scenarios.twofold:Twofold", "label shift in one stream, image shift in another"),
    "ttpfl": Entry(
        "acclimate.scenarios.ttpfl:TTPFL",
        "new clients under feature, label or hybrid shift",
        "Bao et al., NeurIPS 2023",
    ),
    "ttpfl-domains": Entry(
        "acclimate.scenarios.ttpfl:TTPFLDomains",
        "new clients of a domain nobody trained on",
        "Bao et al., NeurIPS 2023",
    ),
    "upfl": Entry("acclimate.scenarios.upfl:UPFL", "half of the clients are new, with few classes each", "FedTTA"),
    "upfl-rotation": Entry("acclimate.scenarios.upfl:UPFLRotation", "new clients see other rotations", "FedTTA"),
    "ttfl": Entry("acclimate.scenarios.ttfl:TTFL", "groups of clients meet corruptions over time", "TSA"),
    "tgfl": Entry("acclimate.scenarios.tgfl:TGFL", "five test distributions per client", "BTFL"),
    "domain-shift": Entry("acclimate.scenarios.domain_shift:DomainShift", "covariate and domain shift", "FedICON"),
    "attribute-shift": Entry("acclimate.scenarios.attribute_shift:AttributeShift", "CIFAR-10 to CIFAR-10.1", "FedICON"),
    "writers": Entry("acclimate.scenarios.writers:Writers", "trained on employees' handwriting, tested on students'"),
    "own": Entry("acclimate.scenarios.own:Own", "your own images: a folder per client, or a CSV"),
    "nodes": Entry("acclimate.scenarios.nodes:Nodes", "images that stay on Flower's nodes, each of which is a client"),
    "timetable": Entry("acclimate.scenarios.timetable:Timetable", "who meets what when, written by hand"),
}

MODELS = {
    "mlp": Entry(
        "acclimate.models.mlp:MLP", "fully connected, 784-200-200-10 on MNIST", "McMahan et al., AISTATS 2017"
    ),
    "shallow-cnn": Entry(
        "acclimate.models.shallow_cnn:ShallowCNN", "five layers with batch norms", "Bao et al., NeurIPS 2023"
    ),
    "fedtta-cnn": Entry(
        "acclimate.models.fedtta_cnn:FedTTACNN",
        "two padded convolutions in three widths, no norms",
        "Ye et al., SDM 2024",
    ),
    "simple-cnn": Entry(
        "acclimate.models.simple_cnn:SimpleCNN", "two convolutions, 1600-64-10 on CIFAR-10, of BTFL and FedICON"
    ),
    "resnet8": Entry("acclimate.models.resnet:resnet8", "three basic blocks, of TSA", "He et al., CVPR 2016"),
    "resnet18": Entry("acclimate.models.resnet:resnet18", "eight basic blocks", "He et al., CVPR 2016"),
    "resnet50": Entry("acclimate.models.resnet:resnet50", "sixteen bottleneck blocks", "He et al., CVPR 2016"),
    "resnet20-gn": Entry(
        "acclimate.models.resnet:resnet20_gn", "nine narrow blocks with group norms, of BTFL", "He et al., CVPR 2016"
    ),
    "resnext29": Entry(
        "acclimate.models.resnext:resnext29", "nine grouped bottleneck blocks, of AugMix", "Xie et al., CVPR 2017"
    ),
    "wide-resnet": Entry(
        "acclimate.models.wide_resnet:WideResNet",
        "wide pre-activation blocks, WRN-16-2 unless told otherwise",
        "Zagoruyko & Komodakis, BMVC 2016",
    ),
    "cct": Entry("acclimate.models.cct:CCT", "compact convolutional transformer, CCT-4/3x2", "Hassani et al., 2021"),
}

PHASES = {**TRAINING, **CALIBRATION}

# Options that are methods themselves: annotated so, they are written as a name or as a mapping with name and options.
NESTED: dict[str, dict[str, Entry]] = {
    "acclimate.losses:Term": TERMS,
    "acclimate.contracts:Algorithm": PHASES,
    "acclimate.contracts:Aggregator": AGGREGATORS,
    "acclimate.contracts:AdapterRecipe": ADAPTERS,
}

# What a class outside the package must be to stand in the place of a table's own.
CONTRACTS: list[tuple[dict[str, Entry], Entry]] = [
    (ADAPTERS, Entry("acclimate.contracts:Adapter", "an adapter, a subclass of acclimate.Adapter")),
    (AGGREGATORS, Entry("acclimate.contracts:Aggregator", "an aggregator, a subclass of acclimate.Aggregator")),
    (PHASES, Entry("acclimate.contracts:Algorithm", "a phase, a subclass of acclimate.Algorithm")),
    (SCENARIOS, Entry("acclimate.scenarios.population:Scenario", "a scenario, a subclass of acclimate.Scenario")),
    (MODELS, Entry("torch.nn:Module", "a model, a subclass of torch.nn.Module or a function that makes one")),
]

# Systems that are more than an adapter of the same name. Every adapter is a system by itself, and
# 'aggregator+adapter' is one too.
SYSTEMS: dict[str, dict[str, Any]] = {
    "atp": {"phases": [{"name": "atp", "rounds": 400}], "adapter": "atp"},
    "bbse": {"phases": [{"name": "bbse", "rounds": 1}], "adapter": "bbse"},
    "btfl": {"phases": [{"name": "btfl-densities", "rounds": 1}], "adapter": "btfl"},
    "fedthe": {"phases": [{"name": "fedthe-means", "rounds": 1}], "adapter": "fedthe"},
    "fedthe-plus": {"phases": [{"name": "fedthe-means", "rounds": 1}], "adapter": {"name": "fedthe", "tune_steps": 3}},
    "knn-per": {"phases": [{"name": "knn-per", "rounds": 1}], "adapter": "knn-per"},
    "eata": {"phases": [{"name": "eata", "rounds": 1}], "adapter": "eata"},
    "surgical": {"phases": [{"name": "surgical", "rounds": 1}], "adapter": "surgical"},
    "fedtta": {"phases": [{"name": "fedtta", "rounds": 200}], "adapter": "fedtta"},
    "fedtta-prox": {"phases": [{"name": "fedtta-prox", "rounds": 200}], "adapter": "fedtta"},
    "fedtta++": {"phases": [{"name": "fedtta-prox", "rounds": 200}], "adapter": "fedtta++"},
    "hetero-fedtta": {"phases": [{"name": "hetero-fedtta", "rounds": 1000}], "adapter": "fedtta"},
    "hetero-tent": {"phases": [{"name": "fedmd", "rounds": 1000}], "adapter": "tent-upfl"},
    "pfl-ensemble": {"phases": [{"name": "pfl-ensemble", "rounds": 200}], "adapter": "pfl-ensemble"},
    "tta-bn": {"adapter": {"name": "bn-adapt", "prior": 0, "unbiased": False}},  # of TSA: the batch's statistics alone
}

ROOMS: dict[str, dict[str, Entry]] = {
    "training": TRAINING,
    "calibration": CALIBRATION,
    "adapters": ADAPTERS,
    "aggregators": AGGREGATORS,
    "terms": TERMS,
    "scenarios": SCENARIOS,
    "models": MODELS,
}


SHIPPED, PUBLISHED = (Path(__file__).parent / name for name in ("shipped", "published"))


def shipped() -> dict[str, Path]:
    """The experiments inside the package, by name."""
    return _files(SHIPPED)


def tables() -> dict[str, Path]:
    """The published tables inside the package, by name."""
    return _files(PUBLISHED)


def _files(folder: Path) -> dict[str, Path]:
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}
