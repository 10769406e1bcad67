"""The door of the server: what clients send is looked at before it counts.

A reply or an upload must look like an honest client's, which the method declares (`expects`, `limits`); an upload must
also be near what the server has, by a measure that no honest client comes near. Whoever fails is left out, with the
reason, and everybody else goes on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from acclimate import trees
from acclimate.contracts import Adapter, Limits, Reply, Upload
from acclimate.params import Params
from acclimate.trees import Form, Parcel

NOT_FINITE = "values that are not finite"
FARTHEST = 10.0  # times the size of what the server has and of what others have changed; honest clients stay below one
ROUNDING = 1e-5  # a probability may be this much above one
HEAVIEST = 1e12  # of weights, far above any number of images: two that are near the largest float add up to infinity


def reply_fault(form: Form, reply: object) -> str | None:
    """Why a reply cannot be used, apart from updates that are not finite, which are found where they are added up."""
    if not isinstance(reply, Reply):
        return f"no reply but a {type(reply).__name__}"
    if not _is_number(reply.weight) or not 0 <= reply.weight <= HEAVIEST:
        return f"a weight that is no number from 0 to {HEAVIEST:g}"
    if not isinstance(reply.metrics, Mapping) or not all(
        is_text(name) and _is_number(value) for name, value in reply.metrics.items()
    ):
        return "metrics that are no numbers by name"
    if unlike := form.misfit(reply.update):
        return unlike
    # Those of an honest client are not finite where its update is not either, or where it sends none.
    odd = not all(map(math.isfinite, reply.metrics.values())) and trees.nbytes(reply.update) > 0
    return "metrics that are not finite" if odd and trees.finite(reply.update) else None


@dataclass(frozen=True)
class Door:
    """What uploads of one test must look like: as those of an adapter that the server has made for itself.

    Where it cannot make one, since part of it is only on the clients, they must look like most of them.
    """

    most: float  # images in a batch
    start: Form | None = None  # before any adaptation
    form: Form | None = None
    limits: Limits = field(default_factory=dict)
    origin: Params = field(default_factory=dict)  # what clients had before any adaptation

    @classmethod
    def of(cls, adapter: Adapter, classes: int, signature: Tensor | None, most: float) -> Door:
        """The door for clients with such an adapter, which has seen no batch yet."""
        first, later = adapter.shared(), adapter.expects(classes)
        origin = {name: tensor for name, tensor in first.items() if tensor.shape == later[name].shape}
        return cls(most, Form((first, None)), Form((later, signature)), adapter.limits(), origin)

    def starts(self, uploads: Sequence[Upload]) -> list[Upload]:
        """Those before any adaptation that can be used."""
        form, uploads = self.start or _usual(uploads), [u for u in uploads if isinstance(u, Upload)]
        return [u for u in uploads if form.misfit((u.params, u.signature)) is None and trees.finite(u.params)]

    def faults(self, uploads: Mapping[int, Any], expected: Mapping[int, tuple[int, int]]) -> dict[int, str]:
        """Whose uploads cannot be used, and why; `expected` are the client and the slot of each."""
        form = self.form or _usual(list(uploads.values()))
        found = {m: self._fault(upload, form, *expected[m]) for m, upload in uploads.items()}
        sound = {m: upload for m, upload in uploads.items() if found[m] is None}
        return {m: why for m, why in found.items() if why is not None} | self._far(sound)

    def _fault(self, upload: object, form: Form, client: int, slot: int) -> str | None:
        if not isinstance(upload, Upload) or not is_same((upload.client, upload.slot), (client, slot)):
            return "no upload of this client and slot"
        if not _is_number(upload.weight) or not 0 <= upload.weight <= min(self.most, HEAVIEST):
            return "a number of images that cannot be"
        if unlike := form.misfit((upload.params, upload.signature)):
            return unlike
        for name, (least, greatest) in self.limits.items():
            tensor = upload.params[name]
            if tensor.numel() and not bool(((tensor >= least) & (tensor <= greatest + ROUNDING)).all()):
                return f"'{name}' is below {least:g}" + (f" or above {greatest:g}" if greatest < math.inf else "")
        return None if trees.finite((upload.params, upload.signature)) else NOT_FINITE

    def _far(self, uploads: Mapping[int, Upload]) -> dict[int, str]:
        """Those that no honest client could have sent, by their distance from what the server has."""
        size, moved = _distance(self.origin, {}), [_distance(u.params, self.origin) for u in uploads.values()]
        signed = [_distance({} if u.signature is None else {"": u.signature}, {}) for u in uploads.values()]
        reach, loudest = FARTHEST * (size + _median(moved)), 2 * FARTHEST * _median(signed)
        return {
            m: f"it is {distance:.3g} away from what the server has; honest clients stay below {reach:.3g}"
            if distance > reach
            else f"its signature is {loud:.3g} long; honest ones stay below {loudest:.3g}"
            for m, distance, loud in zip(uploads, moved, signed, strict=True)
            if distance > reach or loud > loudest
        }


def opened(parcel: Parcel) -> Any:
    """What is in a parcel; None if it is damaged."""
    try:
        return parcel.open()
    except ValueError:
        return None


def told(faults: Mapping[int, str], most: int = 3) -> str:
    """Who was left out and why, the first few.

    >>> told({3: "'w' is missing", 4: "'w' is missing", 7: "values that are not finite"})
    "3 (clients 3, 4: 'w' is missing; client 7: values that are not finite)"
    """
    by_reason: dict[str, list[int]] = {}
    for client, why in faults.items():
        by_reason.setdefault(why, []).append(client)
    parts = [f"client{'s' * (len(ids) > 1)} {_listed(ids)}: {why}" for why, ids in list(by_reason.items())[:most]]
    return f"{len(faults)} ({'; '.join(parts)}{'; …' if len(by_reason) > most else ''})"


def _usual(uploads: Sequence[Upload]) -> Form:
    """What most uploads look like."""
    nests = [(upload.params, upload.signature) for upload in uploads if isinstance(upload, Upload)]
    forms = [Form(nest) for nest in nests]
    return max(forms, key=lambda form: sum(form.misfit(nest) is None for nest in nests), default=Form(None))


def _listed(ids: Sequence[int], most: int = 5) -> str:
    return ", ".join(map(str, ids[:most])) + (", …" if len(ids) > most else "")


def _distance(tensors: Params, origin: Params) -> float:
    """‖tensors − origin‖ over all of them; what the origin lacks is seen from zero."""
    seen = (tensor - origin[name] if name in origin else tensor for name, tensor in tensors.items())
    counted = (tensor if tensor.is_floating_point() else tensor.double() for tensor in seen)
    norms = [torch.linalg.vector_norm(tensor, dtype=torch.float64) for tensor in counted]
    return float(torch.stack(norms).norm()) if norms else 0.0


def _median(values: Sequence[float]) -> float:
    return float(torch.tensor(values, dtype=torch.float64).quantile(0.5)) if values else 0.0


def is_text(value: object) -> bool:
    r"""Whether it is a string that can be written: one out of JSON may have halves of characters.

    >>> is_text("loss"), is_text("\ud800"), is_text(1)
    (True, False, False)
    """
    return isinstance(value, str) and value == value.encode(errors="ignore").decode()


def is_same(found: tuple[object, ...], expected: tuple[int | str, ...]) -> bool:
    """Whether these are the same numbers and names: 1.0 and a tensor may be equal to 1, and cannot stand for it."""
    return all(isinstance(value, int | str) for value in found) and found == expected


def _is_number(value: object) -> bool:
    """Whether it is a number, and a whole one not too long to be saved."""
    if isinstance(value, bool):
        return False
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**63)
