"""Numbers that the fields of a snapshot can hold."""

from __future__ import annotations

from typing import Annotated

import msgspec

Int = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""No register, file or call that a snapshot is read from holds more, and the rule engine could not take it."""

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
