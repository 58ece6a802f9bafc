"""What the readers take out of files: names, values, places, and what only looks like a setting."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topoadvisor.lint.model import Assignment, Unreadable
from topoadvisor.lint.pieces import Piece
from topoadvisor.lint.readers import embedded
from topoadvisor.lint.readers.embedded import Kind


def found(text: str, kind: Kind = "shell") -> list[Assignment]:
    return sorted(embedded.read(Piece(text), kind).assignments, key=lambda each: each.at)


def pairs(text: str, kind: Kind = "shell") -> list[tuple[str, str | None, str]]:
    return [(each.name, each.value, each.way) for each in found(text, kind)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("export NCCL_DEBUG=INFO", [("NCCL_DEBUG", "INFO", "export")]),
        ("export NCCL_DEBUG='IN'\"FO\"", [("NCCL_DEBUG", "INFO", "export")]),
        ("export NCCL_DEBUG", []),
        ("NCCL_DEBUG=INFO", [("NCCL_DEBUG", "INFO", "plain")]),
        ("NCCL_DEBUG=INFO ./a", [("NCCL_DEBUG", "INFO", "command")]),
        ("  declare -x NCCL_DEBUG=INFO", [("NCCL_DEBUG", "INFO", "export")]),
        ("declare NCCL_DEBUG=INFO", [("NCCL_DEBUG", "INFO", "plain")]),
        ("export NCCL_DEBUG=$A", [("NCCL_DEBUG", None, "export")]),
        ('export NCCL_DEBUG="x${A}"', [("NCCL_DEBUG", None, "export")]),
        ("export NCCL_DEBUG=`cat x`", [("NCCL_DEBUG", None, "export")]),
        ("export NCCL_TOPO_FILE=~/x", [("NCCL_TOPO_FILE", None, "export")]),
        ('mpirun -x NCCL_TOPO_FILE=~/"a b" ./a', [("NCCL_TOPO_FILE", None, "launcher")]),
        ('export NCCL_TOPO_FILE="~/x"', [("NCCL_TOPO_FILE", "~/x", "export")]),
        (
            "export 'NCCL_TOPO_FILE=~/x' NCCL_DEBUG_FILE=\\~/y",
            [("NCCL_TOPO_FILE", "~/x", "export"), ("NCCL_DEBUG_FILE", "~/y", "export")],
        ),
        ("export NCCL_DEBUG={{ level }} NCCL_NET=IB", [("NCCL_DEBUG", None, "export"), ("NCCL_NET", "IB", "export")]),
        ("export NCCL_DEBUG=${NCCL_DEBUG:-INFO}", [("NCCL_DEBUG", "INFO", "export")]),
        ("export NCCL_ALGO+=,Tree", [("NCCL_ALGO", None, "export")]),
        ("# export NCCL_DEBUG=INFO", []),
        ("echo NCCL_DEBUG=INFO", []),
        ("echo 'export NCCL_DEBUG=INFO'", []),
        ("grep -q NCCL_DEBUG=INFO log && true", []),
        ('if [ "$NCCL_DEBUG" = INFO ]; then :; fi', []),
        ("unset NCCL_DEBUG; env -u NCCL_DEBUG ./a", []),
        ("env -i NCCL_DEBUG=INFO ./a NCCL_NET=IB", [("NCCL_DEBUG", "INFO", "command")]),
        ("sudo -E NCCL_DEBUG=INFO ./a", [("NCCL_DEBUG", "INFO", "command")]),
        ("mpirun -x NCCL_DEBUG -x NCCL_NET=IB ./a", [("NCCL_NET", "IB", "launcher")]),
        ("mpirun \\\n  -x NCCL_NET=IB \\\n  ./a", [("NCCL_NET", "IB", "launcher")]),
        ("mpiexec -genv NCCL_NET IB ./a", [("NCCL_NET", "IB", "launcher")]),
        ("docker run --env NCCL_NET=IB -eFOO=1 img", [("NCCL_NET", "IB", "launcher")]),
        ("srun --export=ALL,NCCL_NET=IB ./a", [("NCCL_NET", "IB", "launcher")]),
        ("#SBATCH --export=ALL,NCCL_NET=IB", [("NCCL_NET", "IB", "export")]),
        ("X=$(NCCL_DEBUG=INFO ./a)", [("NCCL_DEBUG", "INFO", "command")]),
        ("cat <<EOF\nexport NCCL_DEBUG=INFO\nEOF\n", []),
        ("cat <<EOF > job.sh\nexport NCCL_DEBUG=INFO\nEOF\n", [("NCCL_DEBUG", "INFO", "export")]),
        (
            "cat > /etc/nccl.conf <<-EOF\nNCCL_DEBUG=$L\nNCCL_NET=IB\nEOF\n",
            [("NCCL_DEBUG", None, "conf"), ("NCCL_NET", "IB", "conf")],
        ),
        (
            "printf 'NCCL_NET=IB\\nNCCL_IB_TC=3\\n' | sudo tee -a /etc/nccl.conf",
            [("NCCL_NET", "IB", "conf"), ("NCCL_IB_TC", "3", "conf")],
        ),
        ("sbatch <<'EOF'\n#!/bin/bash\nexport NCCL_NET=IB\nEOF", [("NCCL_NET", "IB", "export")]),
        ("ssh node bash -c 'export NCCL_NET=IB; ./a'", [("NCCL_NET", "IB", "export")]),
        ("setenv NCCL_NET IB", [("NCCL_NET", "IB", "export")]),
        ("NCCL_ARGS=(-x NCCL_NET=IB)", [("NCCL_ARGS", None, "plain"), ("NCCL_NET", "IB", "launcher")]),
        ("echo $((1<<20))\nexport NCCL_NET=IB", [("NCCL_NET", "IB", "export")]),
        ("((x = 1 << 2))\nexport NCCL_NET=IB", [("NCCL_NET", "IB", "export")]),
        (
            "export NCCL_DEBUG=INFO\r\nexport NCCL_NET=IB\r\n",
            [("NCCL_DEBUG", "INFO", "export"), ("NCCL_NET", "IB", "export")],
        ),
        ("export 'NCCL_NET=IB", [("NCCL_NET", "IB", "export")]),
    ],
)
def test_shell(text: str, expected: list[tuple[str, str | None, str]]) -> None:
    assert pairs(text) == expected


def test_a_list_with_expansions_keeps_what_is_known() -> None:
    text = "srun --export=ALL,NCCL_NET=IB,NCCL_IB_HCA=$HCA,HOST=$host ./a"
    assert pairs(text) == [("NCCL_NET", "IB", "launcher"), ("NCCL_IB_HCA", None, "launcher")]
    assert embedded.read(Piece(text), "shell").remarks == []


def test_values_know_where_they_stand() -> None:
    text = "é='x'; export NCCL_NET=\"IB\" NCCL_ALGO=Ring NCCL_PROTO=a\\ b"
    spans = [text[each.span[0] : each.span[1]] if each.span else None for each in found(text)]
    assert spans == ["IB", "Ring", None]
    assert [text[each.at :][: len(each.name)] for each in found(text)] == ["NCCL_NET", "NCCL_ALGO", "NCCL_PROTO"]


def test_branches_of_a_condition_are_told_apart() -> None:
    text = "if [ $RANK = 0 ]; then\n export NCCL_NET=IB\nelif x; then\n export NCCL_NET=Socket\nelse\n"
    text += " export NCCL_NET=x\nfi\n"
    text += "case $y in\n a|b) export NCCL_ALGO=Ring;;\n (c) export NCCL_ALGO=Tree;;\nesac\nexport NCCL_ALGO=PAT\n"
    text += "for i in 1 2; do NCCL_PROTO=LL ./a; done\nf() { export NCCL_IB_TC=1; }\nx && export NCCL_IB_TC=2\n"
    each = found(text)
    assert len({one.branch for one in each[:3]}) == 3
    assert [one.only for one in each[:4]] == ["rank", "rank", "rank", None]
    assert len({one.branch for one in each[3:6]}) == 3
    assert each[5].branch == ()
    assert all(one.branch for one in each[6:])


def test_a_condition_in_one_line_asks_for_the_rank_too() -> None:
    each = found("[ $RANK = 0 ] && export NCCL_ALGO=Ring\nexport NCCL_ALGO=$RANK\n[ x ] || export NCCL_ALGO=Tree\n")
    assert [one.only for one in each] == ["rank", None, None]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("run(['mpirun', '-x', 'NCCL_NET=IB'])", "python"),
        ("cmd = ('\u00e9 ' \"a \\\"x\\\" \"\n  'mpirun -x ' f'{y} -x NCCL_NET=IB')", "python"),
        ('cmd = """\\\nmpirun \\\n -x NCCL_NET=IB"""', "python"),
        ('FROM x\nENTRYPOINT ["mpirun", "-x", "NCCL_NET=IB"]', "dockerfile"),
    ],
)
def test_commands_know_their_place_in_the_file(text: str, kind: Kind) -> None:
    (each,) = found(text, kind)
    assert text[each.at :].startswith("NCCL_NET")
    assert each.span is not None
    assert text[slice(*each.span)] == "IB"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '[Service]\nEnvironment=NCCL_NET=IB "NCCL_IB_HCA=a b"\n',
            [("NCCL_NET", "IB", "service"), ("NCCL_IB_HCA", "a b", "service")],
        ),
        ("[Service]\nEnvironment=A=1 \\\n  NCCL_NET=IB\n", [("NCCL_NET", "IB", "service")]),
        ("[Service]\nEnvironment=NCCL_DEBUG_FILE=%h/x\n", [("NCCL_DEBUG_FILE", None, "service")]),
        ("[Service]\nExecStart=-/bin/env NCCL_NET=IB /x\n", [("NCCL_NET", "IB", "command")]),
        ("[Unit]\nDescription=NCCL_NET=IB\n# Environment=NCCL_NET=IB\n", []),
    ],
)
def test_units_of_systemd(text: str, expected: list[tuple[str, str | None, str]]) -> None:
    assert pairs(text, "systemd") == expected
    for each in found(text, "systemd"):
        assert text[each.at :].startswith(each.name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("setenv(\"NCCL_NET\", \"IB\")\npushenv( 'NCCL_ALGO', 'Ring' )\n", [("NCCL_NET", "IB"), ("NCCL_ALGO", "Ring")]),
        ('if x then setenv("NCCL_TOPO_FILE", pathJoin(root, "t.xml")) end\n', [("NCCL_TOPO_FILE", None)]),
        ('setenv("NCCL_TOPO_FILE", "/a/" .. x)\n', [("NCCL_TOPO_FILE", None)]),
        ('-- setenv("NCCL_NET", "IB")\nunsetenv("NCCL_NET")\n', []),
    ],
)
def test_lua_module_files(text: str, expected: list[tuple[str, str | None]]) -> None:
    assert [(each.name, each.value) for each in found(text, "lua")] == expected


def test_uses_are_not_those_that_keep_a_value() -> None:
    contents = embedded.read(Piece("export NCCL_A=${NCCL_A:-1}\nexport LD=$NCCL_HOME/lib\n"), "shell")
    assert contents.uses == {"NCCL_HOME"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('FROM x\nENV NCCL_NET=IB NCCL_ALGO="Ring"\n', [("NCCL_NET", "IB", "image"), ("NCCL_ALGO", "Ring", "image")]),
        ("FROM x\nENV NCCL_NET IB\n", [("NCCL_NET", "IB", "image")]),
        ("FROM x\nENV A=1 \\\n  # why\n\n  NCCL_NET=IB\nUSER me\n", [("NCCL_NET", "IB", "image")]),
        ("FROM x\nENV NCCL_NET=$NET\n", [("NCCL_NET", None, "image")]),
        ("FROM x\nRUN a \\\n && export NCCL_NET=IB \\\n && b\n", [("NCCL_NET", "IB", "layer")]),
        (
            "FROM x\nRUN <<EOF\nexport NCCL_NET=IB\nEOF\nENV NCCL_ALGO=Ring\n",
            [("NCCL_NET", "IB", "layer"), ("NCCL_ALGO", "Ring", "image")],
        ),
        ("FROM x\n# ENV NCCL_NET=IB\nLABEL NCCL_NET=IB\n", []),
        ("FROM x\nCMD NCCL_NET=IB ./a\n", [("NCCL_NET", "IB", "command")]),
        ('FROM x\nENTRYPOINT ["mpirun", "-x", \\\n "NCCL_NET=IB", "./a"]\n', [("NCCL_NET", "IB", "launcher")]),
        ('FROM x\nCMD ["env", "NCCL_NET=IB", "./a"]\n', [("NCCL_NET", "IB", "command")]),
        ('FROM x\nRUN ["bash", "-c", "export NCCL_NET=IB"]\n', [("NCCL_NET", "IB", "layer")]),
        ("FROM x\nHEALTHCHECK --interval=5s CMD NCCL_NET=IB ./a\n", [("NCCL_NET", "IB", "command")]),
        ("FROM x\nONBUILD ENV NCCL_NET=IB\n", [("NCCL_NET", "IB", "image")]),
        ('FROM x\nCMD ["./a", "NCCL_NET=IB"]\n', []),
    ],
)
def test_dockerfiles(text: str, expected: list[tuple[str, str | None, str]]) -> None:
    assert pairs(text, "dockerfile") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("env:\n  NCCL_NET: IB\n", [("NCCL_NET", "IB", "container")]),
        ("args:\n- NCCL_NET=IB\n", [("NCCL_NET", "IB", "container")]),
        ("hints:\n- NCCL_NET=IB picks the verbs\n", []),
        ('command: [mpirun, -x, "NCCL_IB_HCA=a, b"]\n', [("NCCL_IB_HCA", "a, b", "launcher")]),
        ("environment:\n- NCCL_NET=IB x\n", [("NCCL_NET", "IB x", "container")]),
        ("env:\n- name: NCCL_NET\n  value: 'IB'\n", [("NCCL_NET", "IB", "container")]),
        ("env:\n- {name: NCCL_NET, valueFrom: {x: y}}\n", [("NCCL_NET", None, "container")]),
        ("services: {a: {environment: [NCCL_NET=IB, NCCL_ALGO]}}\n", [("NCCL_NET", "IB", "service")]),
        ("command: [mpirun, -x, NCCL_NET=IB, ./a]\n", [("NCCL_NET", "IB", "launcher")]),
        ("run: |\n  set -e\n  export NCCL_NET=IB\n", [("NCCL_NET", "IB", "export")]),
        ("run: >\n  mpirun\n  -x NCCL_NET=IB\n  ./a\n", [("NCCL_NET", "IB", "launcher")]),
        ("note: NCCL_NET=IB is wrong\ndescription: |\n  NCCL_ALGO=Ring too\n", []),
        ("NCCL_NET:\n  what: x\n", []),
        ("a: &x {NCCL_NET: IB}\nb: *x\n", [("NCCL_NET", "IB", "container")]),
        (
            "env:\n  NCCL_NET: {{ .Values.net }}\n  {{- if .x }}\n  NCCL_ALGO: Ring\n  {{- end }}\n",
            [("NCCL_NET", None, "container"), ("NCCL_ALGO", "Ring", "container")],
        ),
        ('{"env": {\n\t"NCCL_NET": "IB"}}', [("NCCL_NET", "IB", "container")]),
    ],
)
def test_yaml(text: str, expected: list[tuple[str, str | None, str]]) -> None:
    assert pairs(text, "yaml") == expected


def test_scripts_inside_yaml_know_their_place_in_the_file() -> None:
    text = "a:\n  - run: |\n      if x; then\n        export NCCL_NET=IB\n      fi\n"
    text += "      cat <<EOF\n      export NCCL_ALGO=x\n      EOF\n"
    (each,) = found(text, "yaml")
    assert text[each.at :].startswith("NCCL_NET=IB")
    assert each.span is not None
    assert text[slice(*each.span)] == "IB"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import os\nos.environ['NCCL_NET'] = 'IB'", [("NCCL_NET", "IB", "python")]),
        ("environ['NCCL_NET'] = x", [("NCCL_NET", None, "python")]),
        ("os.environ['NCCL_IB_TC'] = str(106)", [("NCCL_IB_TC", "106", "python")]),
        ("os.environ.update(NCCL_NET='IB', **more)", [("NCCL_NET", "IB", "python")]),
        ("os.environ |= {'NCCL_NET': 'IB'}", [("NCCL_NET", "IB", "python")]),
        ("run(['a'], env={'NCCL_NET': 'IB', **os.environ})", [("NCCL_NET", "IB", "python")]),
        ("ray.init(runtime_env={'env_vars': {'NCCL_NET': 'IB'}})", [("NCCL_NET", "IB", "python")]),
        ("runtime_env = {'env_vars': {'NCCL_NET': 'IB'}}", [("NCCL_NET", "IB", "python")]),
        ("@ray.remote(runtime_env={'env_vars': {'NCCL_NET': 'IB'}})\nclass A: ...", [("NCCL_NET", "IB", "python")]),
        ("run(a, env=dict(os.environ, NCCL_NET='IB'))", [("NCCL_NET", "IB", "python")]),
        ("mine = {**os.environ.copy(), 'NCCL_NET': 'IB'}", [("NCCL_NET", "IB", "python")]),
        ("os.execvpe('x', ['x'], os.environ | {'NCCL_NET': 'IB'})", [("NCCL_NET", "IB", "python")]),
        ("WANTED = {'NCCL_NET': 'IB'}\nos.environ.update(WANTED)", [("NCCL_NET", "IB", "python")]),
        ("for k, v in {'NCCL_NET': 'IB'}.items():\n  os.environ[k] = v", [("NCCL_NET", "IB", "python")]),
        ("V1EnvVar(name='NCCL_NET', value='IB')", [("NCCL_NET", "IB", "python")]),
        ("client.run('x', environment=['NCCL_NET=IB', f'NCCL_ALGO={x}'])",
         [("NCCL_NET", "IB", "python"), ("NCCL_ALGO", None, "python")]),
        ("subprocess.run(['mpirun', '-x', 'NCCL_NET=IB', '-x', f'NCCL_ALGO={x}', './a'])",
         [("NCCL_NET", "IB", "launcher")]),
        ("cmd += ['-x', 'NCCL_NET=IB']", [("NCCL_NET", "IB", "launcher")]),
        ("run(['bash', '-c', 'export NCCL_NET=IB; ./a'])", [("NCCL_NET", "IB", "export")]),
        ("os.system('NCCL_NET=IB ./a')", [("NCCL_NET", "IB", "command")]),
        ("cmd = ('mpirun '  # first\n  f'-x NCCL_NET=IB -x NCCL_ALGO={x} ./a')",
         [("NCCL_NET", "IB", "launcher"), ("NCCL_ALGO", None, "launcher")]),
        ("cmd = 'srun --export=ALL,NCCL_NET={} ./a'.format(x)", [("NCCL_NET", None, "launcher")]),
        ("cmd = 'mpirun -x NCCL_NET=%s' % x", [("NCCL_NET", None, "launcher")]),
        ("slurm_setup = ['module load x', 'export NCCL_NET=IB']", [("NCCL_NET", "IB", "export")]),
        ("p.add_argument('--run', help='mpirun -x NCCL_NET=IB')", []),
        ("names = ['NCCL_NET=IB']", []),
        ("log(['echo', 'NCCL_NET=IB'])", []),
        ("HELP = {'NCCL_NET': 'the network'}", []),
        ("assert os.environ['NCCL_NET'] == 'IB'", []),
        ("x = 'export NCCL_NET=IB'", []),
        ("monkeypatch.setenv('NCCL_NET', 'IB')", []),
    ],
)  # fmt: skip
def test_python(text: str, expected: list[tuple[str, str | None, str]]) -> None:
    assert pairs(text, "python") == expected


@pytest.mark.parametrize(
    ("text", "kind", "line"),
    [("a: [\n", "yaml", 2), ("{a: b}}", "json", 1), ("def f(:\n", "python", 1), ("print 'x'\n", "python", 1)],
)
def test_what_cannot_be_parsed_says_where(text: str, kind: Kind, line: int) -> None:
    with pytest.raises(Unreadable) as caught:
        embedded.read(Piece(text), kind)
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("/etc/nccl.conf", "nccl.conf"),
        ("~/.nccl.conf", "nccl.conf"),
        ("a/Dockerfile.gpu", "dockerfile"),
        ("a/GNUmakefile", "makefile"),
        ("cluster.mk", "makefile"),
        ("train.slurm", "shell"),
        (".env.local", "env"),
        ("hosts/.deepspeed_env", "deepspeed-env"),
        ("/etc/systemd/system/x.service", "systemd"),
        ("x.service.d/nccl.conf", "systemd"),
        ("values.yaml", "yaml"),
        ("nccl/2.28.lua", "lua"),
        ("x.txt", None),
    ],
)
def test_names_say_what_a_file_is(name: str, kind: Kind | None) -> None:
    assert embedded.kind_of_name(name) == kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("#!/usr/bin/env python3\n", "python"),
        ("#!/bin/sh\n", "shell"),
        ("# x\nFROM a\n", "dockerfile"),
        ("[Unit]\nDescription=x\n", "systemd"),
        ("[1, 2]\n", "json"),
        ("apiVersion: v1\n", "yaml"),
        ('{"a": 1}', "json"),
        ("import os\n", "python"),
        ("export A=1\n", "shell"),
    ],
)
def test_a_text_without_a_name_says_it_too(text: str, kind: Kind) -> None:
    assert embedded.kind_of_text(text) == kind


PIECES = st.sampled_from(
    [
        'export NCCL_DEBUG=INFO', "'", '"', '$(', ')', '`', '${', '}', '\\', '\n', '<<EOF', 'EOF', 'if', 'then', 'fi',
        'case', 'in', 'esac', ';;', 'do', 'done', '{', '(', '&&', '|', '-x ', '=', 'NCCL_IB_TC=1', '#', '[[', ']]',
        'mpirun ', 'echo ', 'env:', '  - name: NCCL_NET', '\t', ': ', '"value"', "os.environ['NCCL_NET']='IB'\n",
        'CMD [', '"', ', ', ']', 'cmd = [', 'f"', 'os.system(', '**os.environ',
        '{{', '}}', 'ENV ', 'RUN ', 'FROM x\n', "$'", '=(', 'export ', 'ARG B=8M\n',
        'NCCL_NET$(', '$B', ':= ', "python -c '", '\x00', '\r\n', '\udcff', '\xe9',
    ]
)  # fmt: skip


@settings(deadline=None, max_examples=300)
@given(
    st.lists(PIECES, max_size=25).map("".join),
    st.sampled_from(["shell", "dockerfile", "makefile", "yaml", "python", "nccl.conf", "env", "systemd", "lua"]),
)
def test_no_text_breaks_a_reader(text: str, kind: Kind) -> None:
    try:
        contents = embedded.read(Piece(text), kind)
    except Unreadable:
        return
    for each in contents.assignments:
        assert 0 <= each.at <= len(text)
        assert each.span is None or 0 <= each.span[0] <= each.span[1] <= len(text)


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("yaml", "environment:\n  NCCL_IB_TC: ${TC:-300}\n", ("NCCL_IB_TC", "300", "300")),
        ("yaml", "environment:\n  - NCCL_IB_TC=${TC-300}\n", ("NCCL_IB_TC", "300", "300")),
        ("yaml", 'environment:\n  NCCL_NET: "${NCCL_NET:-IB}"\n', ("NCCL_NET", "IB", "IB")),
        ("yaml", "environment:\n  NCCL_IB_TC: ${TC:-$OTHER}\n", ("NCCL_IB_TC", None, "${TC:-$OTHER}")),
        ("dockerfile", "FROM x\nARG B=8M\nENV NCCL_BUFFSIZE=${B}\n", ("NCCL_BUFFSIZE", "8M", "8M")),
        ("dockerfile", 'FROM x\nARG B="8M"\nENV A=1 NCCL_BUFFSIZE="$B" C=2\n', ("NCCL_BUFFSIZE", "8M", "8M")),
        ("dockerfile", "FROM x\nARG B\nENV NCCL_BUFFSIZE=$B\n", ("NCCL_BUFFSIZE", None, None)),
        ("dockerfile", "FROM x\nARG B=8\nENV NCCL_BUFFSIZE=${B}M\n", ("NCCL_BUFFSIZE", None, None)),
    ],
)
def test_a_default_is_the_value_where_nobody_gives_another(
    kind: Kind, text: str, expected: tuple[str, str | None, str | None]
) -> None:
    (each,) = found(text, kind)
    assert (each.name, each.value, text[slice(*each.span)] if each.span else None) == expected
    assert each.fallback == (each.value is not None)


def test_kubernetes_replaces_no_defaults() -> None:
    pod = "apiVersion: v1\nkind: Pod\nspec:\n  env:\n  - {name: NCCL_IB_TC, value: '${TC:-300}'}\n"
    assert pairs(pod, "yaml") == [("NCCL_IB_TC", None, "container")]


BOTH_LAUNCHED = [("NCCL_NET", "IB", "launcher"), ("NCCL_ALGO", "Ring", "launcher")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("export NCCL_NET := IB\n", [("NCCL_NET", "IB", "file")]),
        ("export NCCL_NET=IB # here\n", [("NCCL_NET", "IB", "file")]),
        ("export NCCL_NET ?= $(NET)\n", [("NCCL_NET", None, "file")]),
        ("NCCL_NET = IB\nexport NCCL_NET\n", [("NCCL_NET", "IB", "file")]),
        ("NCCL_NET = IB\nexport\n", [("NCCL_NET", "IB", "file")]),
        (".EXPORT_ALL_VARIABLES:\nNCCL_NET = IB\n", [("NCCL_NET", "IB", "file")]),
        ("run: export NCCL_NET = IB\n", [("NCCL_NET", "IB", "file")]),
        ('override export NCCL_IB_HCA = "mlx5_0"\n', [("NCCL_IB_HCA", '"mlx5_0"', "file")]),
        # Not exported, a comment, and what goes on in the next line.
        ("NCCL_NET = IB\n", []),
        ("# export NCCL_NET = IB\n", []),
        ("A = x \\\n\tNCCL_NET=IB\n", []),
        ("run:\n\t@NCCL_NET=IB ./a\n", [("NCCL_NET", "IB", "command")]),
        (
            "run:\n\tmpirun -x NCCL_NET=$$N -x NCCL_ALGO=Ring ./a\n",
            [("NCCL_NET", None, "launcher"), ("NCCL_ALGO", "Ring", "launcher")],
        ),
        # Variables that hold parts of commands, and are used.
        ("RUN = NCCL_NET=IB ./a\nall:\n\t$(RUN)\n", [("NCCL_NET", "IB", "command")]),
        ("WITH := NCCL_NET=IB\nall:\n\t${WITH} ./a\n", [("NCCL_NET", "IB", "command")]),
        ("MPI = -x NCCL_NET=IB \\\n  -x NCCL_ALGO=Ring\nall:\n\tmpirun $(MPI) a\n", BOTH_LAUNCHED),
        ("define run\nexport NCCL_NET=IB\n./a\nendef\nall:\n\t$(call run,x)\n", [("NCCL_NET", "IB", "export")]),
        ("define run\nexport NCCL_NET=IB\nendef\n", []),
        ("RUN = NCCL_NET=IB ./a\n", []),
        ('HELP = NCCL_NET=IB make\ndefine more\nNCCL_NET=x\nendef\nall:\n\t@echo "$(HELP)"\n$(info $(more))\n', []),
        ("FLAGS = -DNCCL_NET=IB -x c\nall:\n\tcc $(FLAGS)\n", []),
    ],
)
def test_makefiles(text: str, expected: list[tuple[str, str | None, str]]) -> None:
    assert pairs(text, "makefile") == expected
    for each in found(text, "makefile"):
        assert text.startswith(each.name, each.at)
        assert each.span is None or text[slice(*each.span)] == each.value


@pytest.mark.parametrize(
    "text",
    [
        'source <(echo "export NCCL_NET=IB")',
        "source <(cat <<EOF\nexport NCCL_NET=IB\nEOF\n)",
        '. <(printf "export NCCL_NET=IB\\n")',
        'eval "$(echo export NCCL_NET=IB)"',
        "eval $(echo 'export NCCL_NET=IB')",
        "source /dev/stdin <<EOF\nexport NCCL_NET=IB\nEOF\n",
        '. /dev/stdin <<< "export NCCL_NET=IB"',
    ],
)
def test_a_shell_runs_what_commands_print(text: str) -> None:
    assert pairs(text) == [("NCCL_NET", "IB", "export")]
    assert all(text.startswith(each.name, each.at) for each in found(text))


@pytest.mark.parametrize(
    "text",
    [
        "source <(grep NCCL_NET=IB settings)",
        "diff <(echo export NCCL_NET=IB) b",
        "source <(export NCCL_NET=IB)",
        "eval $((NCCL_NET=1))",
    ],
)
def test_and_nothing_else(text: str) -> None:
    assert pairs(text) == []


def test_apptainer_takes_variables_by_their_beginning() -> None:
    text = "export SINGULARITYENV_NCCL_NET=IB\nAPPTAINERENV_NCCL_ALGO=Ring apptainer exec x.sif ./a\n"
    assert pairs(text) == [("NCCL_NET", "IB", "launcher"), ("NCCL_ALGO", "Ring", "launcher")]
    assert all(text.startswith(each.name, each.at) for each in found(text))


def test_python_on_a_command_line() -> None:
    text = "srun python3 -c 'import os; os.environ[\"NCCL_NET\"] = \"IB\"'\npython -c 'not python'\n"
    assert pairs(text) == [("NCCL_NET", "IB", "python")]
