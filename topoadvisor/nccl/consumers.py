"""Whom a variable reaches. A setting that the program concerned does not read changes nothing for it."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from topoadvisor.nccl import settings

NAMES: Final = (
    "NCCL",
    "PyTorch",
    "vLLM",
    "SGLang",
    "TensorRT-LLM",
    "llama.cpp",
    "NVSHMEM",
    "DeepEP",
    "UCX",
    "Gloo",
    "libfabric",
    "MPI",
)
"""Those that communicate between GPUs."""

_THROUGH_NCCL: Final = ("NCCL", "PyTorch", "vLLM", "SGLang", "TensorRT-LLM")
_OWN_PEER_COPIES: Final = (
    "the custom all-reduce of vLLM, SGLang and TensorRT-LLM",
    "llama.cpp's own copies",
    "NVSHMEM",
    "UCX",
)
_LLAMA_CPP: Final = re.compile(r"llama\.?-?cpp|ollama|ggml|gguf|kobold|lm.?studio|llamafile", re.I)
_EXLLAMA: Final = re.compile(r"exllama|tabby", re.I)
_OWN_NETWORK: Final = ("NVSHMEM", "UCX", "Gloo", "MPI")
_LOCAL: Final = frozenset(
    {"NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", "NCCL_CUMEM_ENABLE", "NCCL_CUMEM_HOST_ENABLE"}
    | {"NCCL_NVLS_ENABLE", "NCCL_PROTO", "NCCL_ALGO", "NCCL_MNNVL_ENABLE"}
)
_NETWORK_PREFIXES: Final = ("NCCL_IB_", "NCCL_SOCKET_", "NCCL_NET_", "NCCL_NSOCKS", "NCCL_CROSS_NIC", "NCCL_PXN")


class Reach(NamedTuple):
    """Programs that heed a variable, and those that people expect to and that do not."""

    works_for: tuple[str, ...]
    not_for: tuple[str, ...]


def llama_cpp(framework: str) -> bool:
    """Whether it is llama.cpp or a program that bundles it; LLaMA-Factory, say, is none."""
    return bool(_LLAMA_CPP.search(framework))


def reach(name: str) -> Reach:
    """Whom a variable reaches, by its owner; nobody for a name that is not in the register."""
    info = settings.find(name)
    if info is None:
        return Reach((), ())
    if info.owner != "NCCL":
        return Reach((info.owner,), ())
    if name in _LOCAL:
        return Reach(_THROUGH_NCCL, _OWN_PEER_COPIES)
    if name == "NCCL_NET" or name.startswith(_NETWORK_PREFIXES):
        return Reach(_THROUGH_NCCL, _OWN_NETWORK)
    return Reach(_THROUGH_NCCL, ())


def reaches(name: str, framework: str) -> bool:
    """Whether a variable can do something for what a person said communicates; True where nobody said.

    llama.cpp, what is built on it, and ExLlama copy by themselves: NCCL serves split modes that are not the default.
    """
    own_copies = llama_cpp(framework) or _EXLLAMA.search(framework)
    return not own_copies or not name.startswith("NCCL_")
