import io
import struct
import sys
import time

import pytest

from topoadvisor.collect import nccl_lib
from topoadvisor.collect.world import Files, Process

BANNER = b"\0NCCL version 2.21.5+cuda12.4\0"


def elf(sections):
    """An ELF64 file with the given sections, and 1 MiB of other bytes before them."""
    names = b"\0" + b"\0".join(name for name, _ in sections) + b"\0.shstrtab\0"
    body, headers = bytearray(64 + (1 << 20)), [bytes(64)]
    for name, content in [*sections, (b".shstrtab", names)]:
        place = names.index(name + b"\0")
        headers.append(struct.pack("<IIQQQQ", place, 1, 0, 0, len(body), len(content)).ljust(64, b"\0"))
        body += content
    body[:6] = b"\x7fELF\x02\x01"
    struct.pack_into("<Q", body, 0x28, len(body))
    struct.pack_into("<HHH", body, 0x3A, 64, len(headers), len(headers) - 1)
    return bytes(body) + b"".join(headers)


def found(tree, world):
    return [(library.path, library.version, library.read_by) for library in nccl_lib.read(Files(tree.root), world)]


def test_version_from_the_file_behind_the_link(tree, make_world):
    folder = "/usr/lib/x86_64-linux-gnu"
    tree.file(f"{folder}/libnccl.so.2.28.9", b"")
    tree.link(f"{folder}/libnccl.so.2", "libnccl.so.2.28.9")
    tree.link(f"{folder}/libnccl.so", "libnccl.so.2")
    tree.file(f"{folder}/libnccl-net.so", b"")
    assert found(tree, make_world()) == [(f"{folder}/libnccl.so.2", "2.28.9", "file name")]


def test_version_from_the_python_package(tree, make_world):
    site = "/opt/venv/lib/python3.12/site-packages"
    tree.file(f"{site}/nvidia/nccl/lib/libnccl.so.2", b"")
    tree.folder(f"{site}/nvidia_nccl_cu12-2.27.3.dist-info")
    assert found(tree, make_world()) == [(f"{site}/nvidia/nccl/lib/libnccl.so.2", "2.27.3", "package metadata")]


def test_two_packages_that_claim_one_file_prove_nothing(tree, make_world):
    site = "/opt/venv/lib/python3.12/site-packages"
    tree.file(f"{site}/nvidia/nccl/lib/libnccl.so.2", elf([(b".rodata", BANNER)]))
    tree.folder(f"{site}/nvidia_nccl_cu12-2.27.3.dist-info")
    tree.folder(f"{site}/nvidia_nccl_cu13-2.28.9.dist-info")
    assert found(tree, make_world())[0][1:] == ("2.21.5", "strings")


def test_version_from_the_read_only_data_of_the_file():
    assert nccl_lib.version_in_file(io.BytesIO(elf([(b".text", b"\x90" * 99), (b".rodata", BANNER)]))) == "2.21.5"


def test_names_of_variables_in_the_read_only_data():
    data = b"\0NCCL_DEBUG\0NCCL_IB_HCA set to %s\0" + b"0000:00.0NCCL_SOCKET_MAGIC\0nccl_x\0"
    found = nccl_lib.names_in_file(io.BytesIO(elf([(b".text", b"NCCL_NOT_HERE\0"), (b".rodata", data)])))
    assert found == {"NCCL_DEBUG", "NCCL_SOCKET_MAGIC"}


@pytest.mark.parametrize(
    "content", [b"", b"\x7fELF", b"\x7fELF\x02\x01" + b"\xff" * 90, elf([(b".rodata", b"nothing")]), b"x" * 4096]
)
def test_file_without_a_version(content):
    assert nccl_lib.version_in_file(io.BytesIO(content)) is None


def test_banner_across_two_reads_without_sections():
    data = b"x" * ((1 << 20) - 10) + BANNER
    assert nccl_lib.version_in_file(io.BytesIO(data)) == "2.21.5"


def test_huge_sparse_file_is_searched_to_a_limit(tree):
    place = tree.root / "libnccl.so.2"
    place.parent.mkdir(parents=True)
    with place.open("wb") as stream:
        stream.truncate(50 << 30)
    started = time.monotonic()
    with place.open("rb") as stream:
        assert nccl_lib.version_in_file(stream) is None
    assert time.monotonic() - started < 10


def test_order_is_that_in_which_a_program_meets_them(tree, make_world):
    for path in (
        "/pre/libnccl.so.2.1.1",
        "/vllm/libnccl.so.2.2.2",
        "/first/libnccl.so.2.3.3",
        "/usr/lib64/libnccl.so.2.6.6",
    ):
        tree.file(path, b"")
    tree.file("/site/nvidia/nccl/lib/libnccl.so.2.4.4", b"")
    tree.file("/cached/libnccl.so.2.5.5", b"")
    tree.file(
        "/etc/ld.so.cache", b"glibc-ld.so.cache1.1\0\1libnccl.so.2\0/cached/libnccl.so.2\0libother.so\0/x/libother.so\0"
    )
    environ = {
        "LD_PRELOAD": "/lib/jemalloc.so:/pre/libnccl.so.2.1.1",
        "VLLM_NCCL_SO_PATH": "/vllm/libnccl.so.2.2.2",
        "LD_LIBRARY_PATH": "::relative:/first",
    }
    world = make_world(environ=environ, search_path=("/site",))
    assert [version for _, version, _ in found(tree, world)] == ["2.1.1", "2.2.2", "2.3.3", "2.4.4", "2.5.5", "2.6.6"]


def test_environment_names_no_path_of_another_root(tree, make_world):
    tree.file("/first/libnccl.so.2.3.3", b"")
    assert found(tree, make_world(environ={"LD_LIBRARY_PATH": "/first"}, elsewhere=True)) == []


def test_one_file_under_two_names_is_one_library(tree, make_world):
    tree.file("/usr/lib/x86_64-linux-gnu/libnccl.so.2.28.9", b"")
    tree.link("/lib", "usr/lib")
    assert len(found(tree, make_world())) == 1


def test_missing_named_library_is_left_out(tree, make_world):
    assert found(tree, make_world(environ={"VLLM_NCCL_SO_PATH": "/gone/libnccl.so.2"})) == []


def test_library_is_asked_last_and_in_another_process(tree, make_world):
    tree.file("/usr/lib64/libnccl.so.2", b"not a library")
    calls = []

    def start(argv):
        calls.append(argv)
        return Process([sys.executable, "-c", "print(22809)"], {})

    world = make_world()
    object.__setattr__(world, "start", start)
    assert found(tree, world) == [("/usr/lib64/libnccl.so.2", "2.28.9", "ncclGetVersion")]
    assert calls[0][-1] == "/usr/lib64/libnccl.so.2"


def test_library_that_cannot_be_asked_has_no_version(tree, make_world):
    tree.file("/usr/lib64/libnccl.so.2", b"not a library")
    assert found(tree, make_world()) == [("/usr/lib64/libnccl.so.2", None, None)]
