import os

from topoadvisor.collect import variables
from topoadvisor.collect.world import Files
from topoadvisor.snapshot import NcclLibrary


def in_files(tree, world, version=None):
    libraries = [NcclLibrary(path="/x", version=version)] if version else []
    settings = variables.from_files(Files(tree.root), world, libraries)
    return [(setting.name, setting.value, setting.origin, setting.line) for setting in settings]


def test_environment_holds_nccl_and_its_neighbours_by_name(make_world):
    environ = {
        "NCCL_P2P_LEVEL": "SYS",
        "NCCL_DEBUG": "",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "TORCH_NCCL_BLOCKING_WAIT": "1",
        "PATH": "/bin",
        "HOME": "/root",
    }
    settings = variables.from_environment(make_world(environ=environ))
    assert [(setting.name, setting.value) for setting in settings] == [
        ("CUDA_VISIBLE_DEVICES", "0,1"),
        ("NCCL_DEBUG", ""),
        ("NCCL_P2P_LEVEL", "SYS"),
        ("TORCH_NCCL_BLOCKING_WAIT", "1"),
    ]
    assert {setting.origin for setting in settings} == {"environment"}


def test_secrets_are_never_read(make_world, tree):
    tree.file("/etc/nccl.conf", "MY_TOKEN=abc\nNCCL_DEBUG=INFO\n")
    environ = {"VLLM_API_KEY": "s", "NCCL_PASSWORD": "s", "VLLM_AUTH_TOKEN": "s", "VLLM_PORT": "1"}
    world = make_world(environ=environ)
    assert [setting.name for setting in variables.from_environment(world)] == ["VLLM_PORT"]
    assert [name for name, *_ in in_files(tree, world)] == ["NCCL_DEBUG"]


def test_what_the_register_knows_is_read_whatever_its_name(make_world, tree):
    tree.file("/etc/nccl.conf", "NCCL_IB_PKEY=1\n")
    world = make_world(environ={"NCCL_IB_PKEY_VALUE": "0x8001", "TORCH_FR_BUFFER_SIZE": "2000", "RDMAV_FORK_SAFE": "1"})
    assert [setting.name for setting in variables.from_environment(world)] == sorted(world.environ)
    assert [name for name, *_ in in_files(tree, world)] == ["NCCL_IB_PKEY"]


def test_bytes_that_are_not_text_are_replaced(make_world):
    (setting,) = variables.from_environment(make_world(environ={"NCCL_X": os.fsdecode(b"a\xff")}))
    assert setting.value == "a�"


def test_per_user_file_stands_before_the_system_one_with_line_numbers(tree, make_world):
    tree.file("/home/somebody/.nccl.conf", "# mine\nNCCL_DEBUG=WARN\n")
    tree.file("/etc/nccl.conf", "NCCL_DEBUG=INFO\n\nNCCL_SOCKET_IFNAME==eth0\n NCCL_P2P_LEVEL=SYS\n")
    assert in_files(tree, make_world()) == [
        ("NCCL_DEBUG", "WARN", "/home/somebody/.nccl.conf", 2),
        ("NCCL_DEBUG", "INFO", "/etc/nccl.conf", 1),
        ("NCCL_SOCKET_IFNAME", "=eth0", "/etc/nccl.conf", 3),
        (" NCCL_P2P_LEVEL", "SYS", "/etc/nccl.conf", 4),
    ]


def test_named_file_replaces_the_per_user_one_since_2_23_4(tree, make_world):
    tree.file("/home/somebody/.nccl.conf", "NCCL_A=1\n")
    tree.file("/job/nccl.conf", "NCCL_B=2\n")
    world = make_world(environ={"NCCL_CONF_FILE": "/job/nccl.conf"})
    assert [name for name, *_ in in_files(tree, world)] == ["NCCL_B"]
    assert [name for name, *_ in in_files(tree, world, "2.23.4")] == ["NCCL_B"]
    assert [name for name, *_ in in_files(tree, world, "2.22.3")] == ["NCCL_A"]


def test_empty_name_of_a_file_counts_as_none(tree, make_world):
    tree.file("/home/somebody/.nccl.conf", "NCCL_A=1\n")
    assert [name for name, *_ in in_files(tree, make_world(environ={"NCCL_CONF_FILE": ""}))] == ["NCCL_A"]


def test_home_is_the_variable_since_2_30_3_and_the_password_database_before(tree, make_world):
    tree.file("/home/somebody/.nccl.conf", "NCCL_OLD=1\n")
    tree.file("/elsewhere/.nccl.conf", "NCCL_NEW=1\n")
    world = make_world(environ={"HOME": "/elsewhere"})
    assert in_files(tree, world, "2.28.9")[0][0] == "NCCL_OLD"
    assert in_files(tree, world, "2.30.3")[0][0] == "NCCL_NEW"


def test_named_file_says_nothing_about_another_root(tree, make_world):
    tree.file("/job/nccl.conf", "NCCL_B=2\n")
    assert in_files(tree, make_world(environ={"NCCL_CONF_FILE": "/job/nccl.conf"}, elsewhere=True)) == []


def test_unreadable_file_is_noted(tree, make_world):
    tree.folder("/etc/nccl.conf")
    files = Files(tree.root)
    assert variables.from_files(files, make_world(), []) == []
    assert files.errors[0].subject == "/etc/nccl.conf"
