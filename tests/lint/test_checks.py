"""Single checks: each code on its own example, names in wide circulation, versions, machines, ranks, comments."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topoadvisor.ingest import detect
from topoadvisor.lint import fixes, run
from topoadvisor.lint.codes import CODES
from topoadvisor.lint.document import Finding, Report
from topoadvisor.lint.readers import embedded
from topoadvisor.predict.effects import Effects
from topoadvisor.rules.load import load

RULES = load()


def report(text: str, name: str = "run.sh", **more: object) -> Report:
    kind = embedded.kind_of_name(name) or embedded.kind_of_text(text)
    return run.lint([run.Source(name, text, kind)], RULES, **more)  # type: ignore[arg-type]


def told(text: str, name: str = "run.sh", **more: object) -> list[Finding]:
    return report(text, name, **more).findings


def codes(text: str, name: str = "run.sh", **more: object) -> list[str]:
    return [each.code for each in told(text, name, **more)]


def on(machine: str) -> dict[str, object]:
    return {"snapshot": detect.read([machine], stdin=None), "topology": machine, "effects": Effects}  # type: ignore[arg-type]


@pytest.mark.parametrize("code", [code for code, entry in CODES.items() if entry.example])
def test_the_example_of_a_code_shows_it(code: str) -> None:
    entry = CODES[code]
    machine = on(entry.topology) if entry.topology else {}
    found = [each for each in told(entry.example, entry.file, version=entry.version, **machine) if each.code == code]
    assert found
    assert found[0].severity in ("error", "warning", "info")
    if entry.fix:
        assert found[0].fix is not None or code in ("ENV101", "ENV103", "ENV112")


def test_codes_and_rules_are_told_apart_and_texts_are_there() -> None:
    rules = {rule.id for rule in RULES}
    assert not rules & set(CODES)
    assert {rule for entry in CODES.values() for rule in entry.covers} <= rules
    assert len({entry.name for entry in CODES.values()}) == len(CODES)
    for entry in CODES.values():
        assert entry.what
        assert entry.why.endswith(".")
        assert entry.do.endswith(".")


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("NCCL_MIN_NRINGS=4", "ENV106", "still read; NCCL_MIN_NCHANNELS"),
        ("NCCL_ALGO=RING", "ENV116", "allows only Ring"),
        ("NCCL_GIN_ENABLED=1", "ENV101", "NCCL_GIN_ENABLE may be meant"),
        ("NCCL_GIN_MASTER_HOST=a", "ENV101", "NCCL_COMM_ID"),
        ("NCCL_GIN_CACHE_TIMEOUT=1", "ENV101", "no cache"),
        ("NCCL_GIN_FAILOVER=1", "ENV101", "NCCL_IB_RESILIENCY_PORT_FAILOVER"),
        ("NCCL_DEBUG_SUBSYS=INIT,ALLREDUCE", "ENV113", "COLL is meant"),
        ("NCCL_IB_ADDR=1.2.3.4", "ENV101", "NCCL_IB_ADDR_FAMILY or NCCL_IB_ADDR_RANGE"),
        ("NCCL_IB_TIMEOUT=1000", "ENV114", "1000 is cut to 232 in 8 bits, and to 8 in the 5 bits of the NIC's field"),
        ("NCCL_P2P_LEVEL=sys", "ENV113", "only exactly SYS counts"),
        ("NCCL_P2P_LEVEL=NODE", "ENV113", "PHB is meant"),
        ("NCCL_P2P_LEVEL=5", "P2P011", "read as SYS"),
        ("TORCH_NCCL_TRACE_BUFFER_SIZE=2000", "ENV106", "TORCH_FR_BUFFER_SIZE, which PyTorch reads"),
        ("NCCL_NVLS_ENABLE=true", "ENV112", "read as 0"),
        ("NCCL_PROTO=^LL", "ENV115", "safety check"),
        ("NCCL_BUFFSIZE=8M", "ENV111", "read as 8, and NCCL dies of it"),
        ("NCCL_SOCKET_TIMEOUT=60", "ENV101", "nobody reads"),
    ],
)
def test_names_in_wide_circulation_are_explained_truly(line: str, code: str, words: str) -> None:
    (found,) = told(f"export {line}\n")
    assert found.code == code
    assert words in found.message


def test_nvshmem_says_what_it_needs() -> None:
    questions = {each.code: each for each in report("export NVSHMEM_IB_ENABLE_IBGDA=1\n").unknown}
    assert "PeerMappingOverride=1" in questions[""].reason
    assert "NET046" in questions


def test_nothing_of_a_machine_is_known_without_one() -> None:
    assert codes("export NCCL_MNNVL_ENABLE=1\n") == []
    assert "NVL017" in {each.code for each in report("export NCCL_MNNVL_ENABLE=1\n").unknown}


@pytest.mark.parametrize(
    ("line", "version", "expected"),
    [
        ("NCCL_DEBUG_SUBSYS=INIT,ALLREDUCE", "2.30.4", ("ENV112", "INIT")),
        ("NCCL_DEBUG_SUBSYS=INIT,ALLREDUCE", "2.30.7", ("ENV113", None)),
        ("NCCL_ALGO=Ring,MSCCL", "2.23.4", ("ENV112", "Ring")),
        ("NCCL_ALGO=Ring,MSCCL", "2.24.3", ("ENV111", None)),
        ("NCCL_SET_THREAD_NAME=true", "2.29.7", ("ENV112", "0")),
        ("NCCL_GIN_ENABLE=1", "2.20.5", ("ENV104", None)),
        ("NCCL_MNNVL=1", "2.21.5", ("ENV103", None)),
        ("NCCL_MNNVL=1", "2.20.5", None),
    ],
)
def test_values_and_names_are_judged_by_the_version(
    line: str, version: str, expected: tuple[str, str | None] | None
) -> None:
    found = told(f"export {line}\n", version=version)
    assert [(each.code, each.becomes) for each in found][:1] == ([expected] if expected else [])


def test_an_unknown_version_names_what_older_ones_do() -> None:
    (found,) = told("export NCCL_ALGO=Ring,MSCCL\n")
    assert "before 2.24.3 NCCL takes it as Ring" in found.message


def test_what_nccl_declares_and_never_reads_is_told_though_a_library_names_it() -> None:
    library = run.Library("/x/libnccl.so.2", "2.28.9", frozenset({"NCCL_GRAPH_HELPER_DISABLE"}))
    assert codes("export NCCL_GRAPH_HELPER_DISABLE=1\n", version="2.28.9", nccl_library=library) == ["ENV105"]


def test_a_library_is_the_judge_of_names() -> None:
    library = run.Library(
        "/x/libnccl.so.2", "2.32.3", frozenset({"NCCL_DEBUG", "NCCL_BRAND_NEW", "NCCL_SOCKET_TIMEOUT"})
    )
    text = "export NCCL_BRAND_NEW=1 NCCL_SOCKET_TIMEOUT=1 NCCL_BRAND_NEWER=1 NCCL_IB_GID_INDEX=3 NCCL_DEBUG=WARN\n"
    found = told(text, version="2.32.3", nccl_library=library)
    assert [(each.code, each.variable) for each in found] == [
        ("ENV102", "NCCL_BRAND_NEWER"),
        ("ENV102", "NCCL_IB_GID_INDEX"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "export NCCL_HOME=/opt NCCL_VERSION=2.28 NCCL_LIB_DIR=/usr/lib NCCL_TESTS_DEVICE=1\n",
        "export NCCL_FOO=1\necho $NCCL_FOO\n",
        "NCCL_OPTIONS_FOR_ALL='-b 8'\n",
        "export NCCL_FASTRAK_NUM_FLOWS=2 NCCL_TUNER_CONFIG_PATH=/x\n",
        "export NCCL_IB_HCA=mlx5_1\n",
        "export NCCL_BUFFSIZE=0x400000\n",
        "export NCCL_P2P_LEVEL=\n",
        "export NCCL_PROTO=^LL128\n",
        "export NCCL_PROTO=^LL128,LL\n",
        "export UCX_TLS=rc,cuda_copy TORCH_NCCL_SOMETHING_NEW=1\n",
        "export NCCL_IB_TC=-1\n",
        "export NCCL_DEBUG=info NCCL_DEBUG_SUBSYS=init,net\n",
        "export NCCL_DEBUG=WARN\nexport NCCL_DEBUG=WARN\n",
        "export NCCL_IB_TC=1\n./a\nexport NCCL_IB_TC=2\n./a\n",
        "if x; then export NCCL_IB_TC=1; else export NCCL_IB_TC=2; fi\n",
        "export NCCL_IB_TC=1\nunset NCCL_IB_TC\nexport NCCL_IB_TC=2\n",
        "export NCCL_IB_TC=1\nif x; then export NCCL_IB_TC=2; fi\n",
        "if [ $RANK = 0 ]; then export NCCL_DEBUG=INFO; fi\n",
        "if [ $RANK = 0 ]; then\n export NCCL_CROSS_NIC=1\n mpirun -x NCCL_CROSS_NIC ./a\nfi\n",
        "if [ $RANK = 0 ]; then NCCL_CROSS_NIC=1 srun ./a; fi\n",
        "if [ $RANK = 0 ]; then export NCCL_CROSS_NIC=1; else export NCCL_CROSS_NIC=1; fi\n",
        "export NCCL_IB_TC=1\n[ x ] && { export NCCL_IB_TC=2; }\n",
        "NCCL_IB_TC=1\nexport NCCL_IB_TC\n./a\n",
        "set -a\nNCCL_IB_TC=1\n./a\n",
        "export NCCL_P2P_DISABLE=0 NCCL_P2P_LEVEL=NVL\n",
        "NCCL_DEBUG= ./a\n",
        "export NCCL_DEBUG= FOO=1\nexport NCCL_DEBUG= FOO\n",
        "[ NCCL_DEBUG = INFO ] && [[ $NCCL_DEBUG = INFO ]]\n",
        "srun ./a\nexport NCCL_IB_TC=106\nsource more.sh\n",
        "nvidia-smi\nexport NCCL_IB_TC=106\n",
        "for i in 0 8; do srun ./a; export NCCL_IB_TC=$i; done\n",
        "go() { srun ./a; }\nexport NCCL_IB_TC=106\ngo\n",
        "srun ./a\nexport NCCL_IB_TC=106\necho $NCCL_IB_TC\n",
        "export HCCL_DEBUG=INFO CNCL_DEBUG=INFO RCCL_MSCCL_ENABLE=1 NUM_DEBUG=1 NVCC_DEBUG=1\n",
    ],
)
def test_what_is_no_fault_raises_no_alarm(text: str) -> None:
    assert codes(text) == []


@pytest.mark.parametrize(
    ("text", "repaired"),
    [
        ("export NCCL_IB_TC = 106\n", "export NCCL_IB_TC=106\n"),
        ("export A=1 NCCL_IB_TC =106\n", "export A=1 NCCL_IB_TC=106\n"),
        ("export NCCL_IB_HCA= mlx5_0\n", "export NCCL_IB_HCA=mlx5_0\n"),
        ("NCCL_IB_TC = 106\n", "NCCL_IB_TC=106\n"),
        ("NCCL_IB_TC= 106\n", "NCCL_IB_TC=106\n"),
    ],
)
def test_blanks_around_the_sign_are_an_error_in_a_shell(text: str, repaired: str) -> None:
    (finding,) = told(text)
    assert (finding.code, finding.severity) == ("ENV122", "error")
    assert fixes.apply(text, [finding])[0] == repaired


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("mlx5_0 mlx5_1", "commas only"),
        ("mlx5_0;mlx5_1", "no patterns"),
        ("mlx5_[0-3]", "no patterns"),
        ("mlx5_*", "no patterns"),
        ("!mlx5_0", "no patterns"),
    ],
)
def test_lists_of_devices_have_no_patterns(value: str, words: str) -> None:
    (finding,) = told(f'export NCCL_IB_HCA="{value}"\n')
    assert finding.code == "ENV112"
    assert words in finding.message


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        (
            "NCCL_NVLS_ENABLE=true",
            ["Write 1 to switch it on, 0 to switch it off, or leave it out: NCCL decides by itself."],
        ),
        ("NCCL_CROSS_NIC=3", ["Write a number from 0 to 2."]),
        ("NCCL_IB_TIMEOUT=1000", ["Write a number from 0 to 31."]),
        ("NCCL_BUFFSIZE=4MB", ["Write the number of bytes, without a unit."]),
        ("NCCL_BUFFSIZE=8M", []),
    ],
)
def test_what_is_not_certain_says_what_to_write(line: str, instead: list[str]) -> None:
    (finding,) = told(f"export {line}\n")
    assert finding.advice == instead
    assert bool(instead) == (finding.fix is None)


def test_blanks_that_only_the_newest_nccl_passes_over() -> None:
    (finding,) = told('export NCCL_DEBUG_SUBSYS="INIT, ENV"\n')
    assert (
        finding.message == "NCCL_DEBUG_SUBSYS=INIT, ENV is INIT,ENV since 2.30.7, and INIT before: leave the blanks out"
    )
    text = 'export NCCL_DEBUG_SUBSYS="INIT, ENV"\n'
    assert fixes.apply(text, told(text))[0] == 'export NCCL_DEBUG_SUBSYS="INIT,ENV"\n'
    assert codes(text, version="2.30.7") == []
    assert codes(text, version="2.28.9") == ["ENV112"]


def test_addresses_are_no_interfaces() -> None:
    (finding,) = told("export NCCL_SOCKET_IFNAME=10.0.0.5\n")
    assert "address" in finding.message
    assert codes("export NCCL_SOCKET_IFNAME=enp1s0f0np0,bond0.100,eth0:1,ib-0_a\n") == []


def test_options_in_quotes_are_handed_to_the_ranks() -> None:
    assert codes('deepspeed --launcher_args "-x NCCL_IB_DISABLE=true" a.py\n') == ["ENV112"]
    assert codes('deepspeed --launcher_args="-x NCCL_IB_DISABLE=true" a.py\n') == ["ENV112"]


def test_a_command_of_yaml_that_measures_is_left_alone() -> None:
    assert codes("command: [mpirun, -x, NCCL_ALGO=Ring, /x/all_reduce_perf]\n", "x.yaml") == []
    assert codes("command: [mpirun, -x, NCCL_ALGO=Ring, /x/train]\n", "x.yaml") == ["ENV116"]


def test_devices_of_a_command_that_measures_have_to_be_there() -> None:
    text = "mpirun -x NCCL_SOCKET_IFNAME=eth77 -x NCCL_ALGO=Tree -x NCCL_P2P_LEVEL=LOC ./all_reduce_perf\n"
    assert codes(text, **on("fixture:dgx-h100")) == ["NET020"]


def test_blanks_in_an_env_file_are_told_and_the_value_is_judged() -> None:
    text = "NCCL_IB_DISABLE = true\nOTHER = 1\n"
    assert codes(text, ".env") == ["ENV112", "ENV122"]
    assert fixes.repaired(text, lambda each: told(each, ".env")) == "NCCL_IB_DISABLE=1\nOTHER = 1\n"


def test_sections_of_nccl_conf_are_none() -> None:
    (finding,) = told("[node1]\nNCCL_IB_HCA=mlx5_0\n", "nccl.conf")
    assert (finding.code, finding.line) == ("ENV122", 1)
    assert "[node1]" in finding.message


@pytest.mark.parametrize("start", ["srun ./a", "mpirun ./a", "torchrun a.py", "srun ./a &\nwait"])
def test_what_is_exported_behind_the_last_program_reaches_nobody(start: str) -> None:
    (finding,) = told(f"{start}\nexport NCCL_IB_TC=106\n")
    assert finding.code == "ENV133"


@pytest.mark.parametrize("name", ["NCLL_DEBUG", "NCC_DEBUG", "NCL_DEBUG", "NCCLDEBUG", "NLCC_DEBUG", "NCCCL_DEBUG"])
def test_a_misspelt_beginning_is_seen(name: str) -> None:
    (finding,) = told(f"export {name}=INFO\n")
    assert finding.code == "ENV102"
    assert "NCCL_DEBUG is meant" in finding.message


def test_what_only_rccl_reads_is_told_of_a_machine_with_nvidia_gpus() -> None:
    found = told("export RCCL_MSCCL_ENABLE=1\n", **on("fixture:dgx-h100"))
    assert [(each.code, each.severity) for each in found] == [("ENV105", "info")]


def test_a_unit_of_systemd_ends_values_at_blanks() -> None:
    found = told("[Service]\nEnvironment=NCCL_IB_HCA=mlx5_0 mlx5_1\n", "x.service")
    assert [each.code for each in found] == ["ENV122"]


def test_the_machine_is_judged_by_the_rules() -> None:
    text = "export NCCL_P2P_DISABLE=1\nexport NCCL_ALGO=Ring\nexport NCCL_IB_TIMEOUT=20\nexport NCCL_DEBUG=INFO\n"
    found = {each.code: each for each in told(text, **on("fixture:dgx-h100"))}
    assert set(found) == {"P2P002", "ENV002", "ENV172"}
    assert found["P2P002"].line == 1
    assert found["P2P002"].severity == "error"
    assert told("export NCCL_P2P_LEVEL=SYS\n", **on("fixture:8x4090"))[0].code == "P2P024"
    assert codes("export NCCL_PROTO=^LL\n", **on("fixture:4xa100-pcie")) == ["ENV001"]


@pytest.mark.parametrize(
    ("line", "machine", "code", "words"),
    [
        ("NCCL_P2P_LEVEL=NVL", "dgx-h100", "ENV173", "changes nothing"),
        ("NCCL_P2P_LEVEL=NVL", "dgx-1v", "ENV174", "12 pairs (GPU0-GPU5, GPU0-GPU6, GPU0-GPU7, GPU1-GPU4, …): SHM"),
        ("NCCL_NVB_DISABLE=1", "dgx-1v", "ENV174", "instead of P2P/indirect"),
        ("NCCL_SHM_DISABLE=1", "dgx-h100", "ENV173", "changes nothing"),
        ("NCCL_SHM_DISABLE=1", "8x4090", "SYS002", "network stack"),
        ("NCCL_P2P_DISABLE=1", "4xa6000-acs", "ENV173", "changes nothing"),
        ("NCCL_P2P_DISABLE=1", "gh200", "P2P002", "turns NVLink off"),
        ("NCCL_NET_GDR_READ=0", "dgx-h100", "ENV174", "when sending"),
        ("NCCL_IB_GID_INDEX=3", "dgx-h100", "NET057", "InfiniBand"),
        ("NCCL_ALGO=NVLS", "dgx-a100", "ENV024", "does not have"),
        ("NCCL_ALGO=NVLS", "dgx-h100", "ENV002", "overrides"),
        ("NCCL_IB_HCA=mlx5_77", "dgx-h100", "NET011", "none of the active ports"),
        ("NCCL_SOCKET_IFNAME=eth77", "dgx-h100", "NET020", "no interface"),
    ],
)
def test_what_a_line_does_on_a_machine(line: str, machine: str, code: str, words: str) -> None:
    found = told(f"export {line}\n", **on(f"fixture:{machine}"))
    assert [each.code for each in found] == [code]
    assert words in found[0].message


def test_what_a_machine_advises_is_no_cost() -> None:
    machine = on("fixture:4xa6000-acs")
    assert "ENV174" not in codes("export NCCL_P2P_LEVEL=SYS NCCL_P2P_DISABLE=1\n", **machine)


def test_what_the_machine_decides_stays_open_where_it_was_not_read() -> None:
    open_ = report("export NCCL_P2P_LEVEL=NVL\n").unknown
    assert ("NCCL_P2P_LEVEL", "ENV174") in {(each.variable, each.code) for each in open_}
    there = report("export NCCL_NVLS_ENABLE=1\n", **on("fixture:paste-8xa100"))
    assert {(each.code, each.variable) for each in there.unknown} == {
        ("ENV174", "NCCL_NVLS_ENABLE"),
        ("CLD017", "NCCL_NVLS_ENABLE"),
    }


def test_each_value_of_a_sweep_is_judged_on_the_machine() -> None:
    text = "if x; then\n export NCCL_P2P_LEVEL=NVL\nelse\n export NCCL_P2P_LEVEL=LOC\nfi\n"
    found = told(text, **on("fixture:dgx-h100"))
    assert [(each.code, each.line) for each in found] == [("P2P010", 4)]


def test_a_line_that_makes_a_rule_about_the_machine_fire_is_told() -> None:
    quiet = report("export NCCL_DEBUG=WARN\n", **on("fixture:8x4090"))
    assert quiet.findings == []
    assert quiet.nccl == "2.28.9"


def test_comments_silence_and_keep_their_reason() -> None:
    text = "# topoadvisor: ignore[ENV116] measured\nexport NCCL_ALGO=Ring NCCL_BUFFSIZE=8M\n"
    result = report(text)
    assert [each.code for each in result.findings] == ["ENV111"]
    assert [(each.finding.code, each.reason) for each in result.ignored] == [("ENV116", "measured")]
    # A rule's id stands for the code that covers it, and a continued command is one statement.
    text = "# topoadvisor: ignore[ENV003] an old image\nmpirun \\\n  -x NCCL_ALGO=Tre \\\n  ./a\n"
    assert codes(text) == []
    assert codes("export NCCL_ALGO=Ring  # topoadvisor: ignore[ENV116, ENV115] x\n") == ["ENV192"]


def test_repairs_change_only_what_is_wrong() -> None:
    text = "a=1; export NCCL_BUFFSIZE=8M NCCL_P2P_LEVEL='phb' # é\nexport NCCL_IB_TIMEOUT=1000\n"
    after, count = fixes.apply(text, told(text))
    assert count == 2
    assert after == "a=1; export NCCL_BUFFSIZE=8388608 NCCL_P2P_LEVEL='PHB' # é\nexport NCCL_IB_TIMEOUT=1000\n"


def test_a_text_of_yaml_stays_a_text() -> None:
    text = (
        "env:\n- name: NCCL_BUFFSIZE\n  value: 8M\nenvironment:\n  NCCL_LL_BUFFSIZE: ${X:-8M}\n  NCCL_P2P_LEVEL: phb\n"
    )
    after, _ = fixes.apply(text, told(text, "values.yaml"))
    assert after == text.replace("value: 8M", 'value: "8388608"').replace("8M}", "8388608}").replace("phb", "PHB")


def test_nccl_conf_is_repaired_line_by_line() -> None:
    text = 'export NCCL_IB_TC=106\nNCCL_SOCKET_IFNAME = "eth0" # why\nNCCL_TOPO_FILE=$HOME/x\n'
    after, _ = fixes.apply(text, told(text, "nccl.conf"))
    assert after == "NCCL_IB_TC=106\n# why\nNCCL_SOCKET_IFNAME=eth0\nNCCL_TOPO_FILE=$HOME/x\n"


@pytest.mark.parametrize(
    "line", ["NCCL_NVLS_ENABLE=true", "NCCL_IB_TIMEOUT=1000", "NCCL_BUFFSIZE=4MB", "NCCL_ALGO=Rong"]
)
def test_nothing_is_repaired_whose_meaning_is_not_certain(line: str) -> None:
    assert all(each.fix is None for each in told(f"export {line}\n"))


LINES = st.sampled_from(
    [f"{name}={value}" for name in ("NCCL_ALGO", "NCCL_BUFFSIZE", "NCCL_IB_HCA", "NCCL_P2P_LEVEL", "NCCL_TIMEOUT")
     for value in ("", "8M", "true", "phb", "^LL", " a, b ", "'x'", "$A", "0x", "9" * 30, "é\udcff", "Ring:^;")]
    + ["# topoadvisor: ignore[ENV112]", "# topoadvisor: ignore[", "if [ $RANK ]; then", "fi", "./a", "\r"]
)  # fmt: skip


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.tuples(st.sampled_from(["", "export ", "  ", "mpirun -x ", "ENV "]), LINES), max_size=8),
    st.sampled_from(["run.sh", "nccl.conf", "Dockerfile", "Makefile", "x.env", ".deepspeed_env"]),
    st.sampled_from([None, "2.4.8", "2.20.5", "2.30.7"]),
)
def test_no_text_breaks_a_check_or_a_repair(lines: list[tuple[str, str]], name: str, version: str | None) -> None:
    text = "".join(f"{before}{line}\n" for before, line in lines)
    found = told(text, name, version=version)
    after, _ = fixes.apply(text, found)
    told(after, name, version=version)
    for each in found:
        line = text.split("\n")[each.line - 1]
        assert 1 <= each.column <= len(line) + 1
        assert msgspec.json.encode(each)


def test_keys_in_small_letters_are_variables_only_in_an_environment() -> None:
    assert codes("nccl_socket_ifname: eth0\n", "vars/main.yml") == []
    assert codes("nccl:\n  nccl_debug: INFO\n", "values.yaml") == []
    assert codes("services:\n  a:\n    environment:\n      nccl_ib_hca: mlx5_0\n", "compose.yaml") == ["ENV102"]
    assert codes("env:\n- name: nccl_ib_hca\n  value: mlx5_0\n", "pod.yaml") == ["ENV102"]


def test_compose_takes_truth_values_and_nccl_reads_a_word() -> None:
    text = "services:\n  a:\n    environment:\n      NCCL_CROSS_NIC: {}\n"
    (found,) = told(text.format("true"), "compose.yaml")
    assert (found.code, found.becomes) == ("ENV112", "0")
    (found,) = told(text.format("no"), "compose.yaml")
    assert (found.code, found.severity) == ("ENV112", "info")


def test_a_made_up_name_is_not_renamed() -> None:
    for name in ("NCCL_GIN_ENABLED=1", "NCCL_IB_DEVICE=mlx5_0"):
        assert [(each.code, each.fix) for each in told(f"export {name}")] == [("ENV101", None)]


def test_a_repair_changes_something() -> None:
    (found,) = told("NCCL_TOPO_FILE=~/t.xml\n", "nccl.conf")
    assert (found.code, found.fix) == ("ENV121", None)


def test_the_comment_that_silences_is_not_the_reason() -> None:
    text = "# topoadvisor: ignore[ENV142] needed here\nNCCL_P2P_DISABLE=1\n"
    found = report(text, "nccl.conf")
    assert (found.findings, [each.finding.code for each in found.ignored]) == ([], ["ENV142"])


def test_the_oldest_public_release_stands_for_older_ones() -> None:
    assert "ENV104" not in codes("export NCCL_SHM_DISABLE=1", version="2.1.15")


def test_the_factor_of_ras_was_a_whole_number() -> None:
    (found,) = told("export NCCL_RAS_TIMEOUT_FACTOR=2s")
    assert found.code == "ENV113"
    assert found.message.endswith("(before 2.31.2 NCCL takes it as 2)")


@pytest.mark.parametrize(
    ("line", "code", "becomes"),
    [
        ("NCCL_CGA_CLUSTER_SIZE=16", "ENV114", "8"),
        ("NCCL_MAX_CTAS=128", "ENV114", "64"),
        ("NCCL_SHM_LOCALITY=3", "ENV114", "2"),
        ("NCCL_COLLNET_ENABLE=2", "ENV114", "0"),
        ("NCCL_MIN_CTAS=0", "ENV113", None),
        ("NCCL_COMM_BLOCKING=5", "ENV113", None),
        ("NCCL_NVLS_NCHANNELS=0", "ENV113", None),
        ("NCCL_COMM_SPLIT_SHARE_RESOURCES=2", "ENV114", "0"),
        ("NCCL_P2P_DISABLE=2", "ENV114", "0"),
        ("NCCL_GDRCOPY_ENABLE=2", "ENV114", "0"),
        ("NCCL_IB_DISABLE=2", "ENV114", "1"),
        ("NCCL_NVLS_ENABLE=3", "ENV114", "1"),
        ("NCCL_WORK_FIFO_BYTES=1000000", "ENV114", "1048576"),
        ("NCCL_IB_ADDR_RANGE=10.0.0.0", "ENV113", None),
        ("NCCL_IB_ADDR_RANGE=10.0.0.0/33", "ENV113", None),
        ("NCCL_THREAD_THRESHOLDS=1,2,3", "ENV112", "1"),
    ],
)
def test_what_nccl_works_with_instead(line: str, code: str, becomes: str | None) -> None:
    (found,) = told(f"export {line}")
    assert (found.code, found.becomes) == (code, becomes)


@pytest.mark.parametrize("line", ["NCCL_IB_ADDR_RANGE=10.0.0.0/16", "NCCL_THREAD_THRESHOLDS='-1 8 64'"])
def test_texts_that_nccl_takes(line: str) -> None:
    assert codes(f"export {line}") == []


@pytest.mark.parametrize(
    ("line", "words", "fails"),
    [
        ("NCCL_ALGO=allreduce:tree", "only Tree for AllReduce", None),
        ("NCCL_ALGO=Ring", "only Ring", None),
        ("NCCL_PROTO=Simple", "only Simple", None),
        ("NCCL_ALGO=Ring,Tree", "only Ring, Tree: NCCL picks the algorithm by size among these", None),
        ("NCCL_PROTO=LL,Simple", "only LL, Simple: NCCL picks the protocol by size among these", None),
        ("NCCL_ALGO=NVLS,Tree", "only NVLS, Tree: NCCL picks", "Broadcast, Reduce cannot"),
        ("NCCL_ALGO=Tree", "only Tree", "Broadcast, Reduce, AllGather, ReduceScatter cannot"),
        (
            "NCCL_ALGO='tree;broadcast:ring'",
            "only Tree and Ring for Broadcast",
            "Reduce, AllGather, ReduceScatter cannot",
        ),
    ],
)
def test_a_list_says_which_collectives_fail(line: str, words: str, fails: str | None) -> None:
    (found,) = told(f"export {line}")
    assert found.code == "ENV116"
    assert words in found.message
    assert (fails in found.message) if fails else ("fail" not in found.message)


def test_several_that_are_allowed_are_for_information_and_all_of_them_are_nothing_to_say() -> None:
    (found,) = told("export NCCL_ALGO=Ring,Tree")
    assert found.severity == "info"
    assert codes("export NCCL_ALGO=Tree,Ring,CollNetDirect,CollNetChain,NVLS,NVLSTree,PAT") == []


def test_a_list_that_an_old_nccl_drops_allows_nothing_of_its_own() -> None:
    (found,) = told("export NCCL_ALGO=allreduce:tree", version="2.22.3")
    assert (found.code, found.becomes) == ("ENV112", "Ring, Tree")


def test_ll128_is_forced_only_where_nccl_leaves_it_out() -> None:
    assert "ENV001" not in codes("export NCCL_PROTO=LL128", **on("fixture:dgx-1v"))
    assert "ENV001" in codes("export NCCL_PROTO=LL128", **on("fixture:8x4090"))


def test_words_that_pytorch_takes_for_one_number() -> None:
    line = "export NCCL_BLOCKING_WAIT={} TORCH_NCCL_BLOCKING_WAIT=true\n"
    assert "ENV152" not in codes(line.format(1))
    assert "ENV152" in codes(line.format(0))


def test_a_level_that_prints_nothing_is_no_debugging() -> None:
    assert codes("NCCL_DEBUG=debug\n", "nccl.conf") == ["ENV113"]
    assert codes("NCCL_DEBUG=INFO\n", "nccl.conf") == ["ENV141"]


def test_items_of_compose_are_taken_as_they_are() -> None:
    text = "services:\n  a:\n    environment:\n      - {}\n"
    assert codes(text.format('NCCL_SOCKET_IFNAME="eth0"'), "compose.yaml") == ["ENV112"]
    assert codes(text.format("NCCL_SOCKET_IFNAME=eth0"), "compose.yaml") == []
    assert codes(text.format("NCCL_SOCKET_IFNAME = eth0"), "compose.yaml") == ["ENV122"]


def test_quotes_of_a_word_processor_are_letters() -> None:
    assert codes("export NCCL_SOCKET_IFNAME=“eth0”") == ["ENV112"]


def test_what_a_build_calls_its_own_places_may_end_with_its_step() -> None:
    build = "FROM x\nRUN export NVSHMEM_DIR=/opt/nvshmem && pip install .\nRUN export NCCL_NET=IB\n"
    assert codes(build, "Dockerfile") == ["ENV132"]


@pytest.mark.parametrize(
    ("mark", "expected"),
    [
        ("", ["ENV114", "ENV102", "ENV111"]),
        ("ENV HSA_NO_SCRATCH_RECLAIM=1\n", ["ENV111"]),
        ("ENV RCCL_MSCCL_ENABLE=0\n", ["ENV111"]),
        ("# HSA_NO_SCRATCH_RECLAIM=1 is for others\n", ["ENV114", "ENV102", "ENV111"]),
    ],
)
def test_a_file_for_amds_gpus_is_not_held_to_nccls_names_and_limits(mark: str, expected: list[str]) -> None:
    # AMD's images set 112 channels, of which RCCL has more than NCCL. Numbers it reads as NCCL does.
    text = f"FROM x\n{mark}ENV NCCL_MIN_NCHANNELS=112\nENV NCCL_RINGS_OF_ITS_OWN=1\nENV NCCL_BUFFSIZE=8M\n"
    found = report(text, "Dockerfile")
    assert [each.code for each in found.findings if each.severity != "info"] == expected
    assert any("for AMD GPUs" in each.reason for each in found.unknown) == (len(expected) == 1)


@pytest.mark.parametrize(
    "name", ["NCCL_GPUVIZ_READ_INTERVAL_IN_MICROSECONDS", "NCCL_TELEMETRY_MODE", "NCCL_CHECKPOINT_KVS_TIMEOUT"]
)
def test_names_that_plugins_and_libraries_beside_nccl_read_are_not_unknown(name: str) -> None:
    assert not codes(f"export {name}=1\n./train\n")
