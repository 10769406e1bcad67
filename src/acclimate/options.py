"""Ranges of hyper-parameters: plain annotations that the experiment file's reader enforces."""

from typing import Annotated

from annotated_types import Ge, Gt, Interval, MinLen

LARGEST_SEED = 2**31 - 1

Seed = Annotated[int, Interval(ge=0, le=LARGEST_SEED)]
Count = Annotated[int, Ge(1)]
Whole = Annotated[int, Ge(0)]
Positive = Annotated[float, Gt(0)]
Rates = Annotated[tuple[Positive, ...], MinLen(1)]  # to choose from
NonNegative = Annotated[float, Ge(0)]
Share = Annotated[float, Interval(ge=0, le=1)]
OpenShare = Annotated[float, Interval(gt=0, lt=1)]
PositiveShare = Annotated[float, Interval(gt=0, le=1)]
HalfShare = Annotated[float, Interval(ge=0, lt=0.5)]  # of clients that may be hostile
Decay = Annotated[float, Interval(ge=0, lt=1)]  # momenta and the like
