"""Which cloud a machine is of, by what its firmware says or by the name of an instance type."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_AZURE_TAG: Final = "7783-7084-3265-9085-8269-3286-77"
"""Chassis asset tag of every Azure virtual machine."""

_AWS_TYPE: Final = re.compile(r"(p|g|trn|inf|hpc)[0-9]+[a-z0-9-]*\.([0-9]*x?large|metal(-[0-9a-z]+)?)")
"""An instance type with accelerators, which stands where other machines have their product name."""
_TYPES: Final = {
    "azure": re.compile(r"Standard_N[A-Z]", re.I),
    "gcp": re.compile(r"(a[2-9]x?|g[2-9])-[a-z]+-[0-9]+g", re.I),
    "oci": re.compile(r"(BM|VM)\.GPU", re.I),
}
"""How instance types of the other clouds begin; their firmware does not show them, but people name them."""


def cloud(dmi: Mapping[str, str]) -> str:
    """aws, azure, gcp, oci or none, of the firmware's tables."""
    vendor, tag = dmi.get("sys_vendor", ""), dmi.get("chassis_asset_tag", "")
    if vendor == "Amazon EC2" or tag == "Amazon EC2" or _AWS_TYPE.fullmatch(dmi.get("product_name", "")):
        return "aws"
    if tag == _AZURE_TAG:
        return "azure"
    if vendor == "Google" or dmi.get("product_name") == "Google Compute Engine":
        return "gcp"
    if tag == "OracleCloud.com":
        return "oci"
    named = (name for name, kind in _TYPES.items() if kind.match(dmi.get("product_name", "")))
    return next(named, "none")
