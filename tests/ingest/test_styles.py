"""Random matrices in the many ways in which people paste them: reading any of them gives the matrix back."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from topoadvisor.ingest import topo_matrix
from topoadvisor.render import matrix as render
from topoadvisor.snapshot import Matrix

Style = Callable[[str], str]

LINKS = ["NV1", "NV2", "NV12", "NV18", "C2C", "PIX", "PXB", "PHB", "NODE", "SYS"]
CPUS = ["0-31", "32-63,128-159", "64-127,192-255", "256", "257,321", "258-258,266-266,274-274,282-282", "259-264"]
"""Nothing in two of them, as it is on one machine, and no beginning of one as long as another."""
NODES = ["0", "1", "0-1", "0,3-9,11-17", "N/A"]
DEVICES = ["mlx5_0", "mlx5_bond_1", "rocep80s0f1", "ibp14s0", "roceP2p1s0f0", "bnxt_re2"]


@st.composite
def matrices(draw: st.DrawFn, *, blanks: bool = True) -> Matrix:
    """One matrix such as the driver prints; `blanks` allows empty affinity cells."""
    gpus = [f"GPU{index}" for index in range(draw(st.integers(1, 16)))]
    new_names = draw(st.booleans())
    count = draw(st.integers(0, 12))
    nics = [f"NIC{index}" if new_names else f"mlx5_{index}" for index in range(count)]
    rows = [*gpus, *(nics if draw(st.booleans()) else [])]
    columns = [*gpus, *nics]
    cells: dict[str, dict[str, str]] = {row: {} for row in rows}
    for place, a in enumerate(columns):
        for b in columns[place + 1 :]:
            link = draw(st.sampled_from(LINKS))
            for row, column in ((a, b), (b, a)):
                if row in cells:
                    cells[row][column] = link
    cells = {row: {column: cells[row][column] for column in columns if column != row} for row in rows}
    width = draw(st.integers(0, 3))

    def column(texts: list[str], wanted: bool) -> dict[str, str | None]:
        values = st.sampled_from([*texts, None] if blanks else texts)
        return {gpu: draw(values) for gpu in gpus} if wanted else {}

    return Matrix(
        gpus=gpus,
        nics=nics,
        cells=cells,
        cpu_affinity=column(CPUS, width > 0),
        numa_affinity=column(NODES, width > 1),
        gpu_numa_id=column(["N/A", "2", "18"], width > 2),
        nic_legend={nic: draw(st.sampled_from(DEVICES)) for nic in nics} if new_names and draw(st.booleans()) else {},
    )


def printed(matrix: Matrix) -> str:
    return render.text([matrix])


def table_only(style: Style) -> Style:
    """Apply a style to the table, not to the legends behind it."""

    def styled(text: str) -> str:
        table, gap, legends = text.partition("\n\n")
        return style(table) + gap + legends

    return styled


def each_line(change: Callable[[str], str]) -> Style:
    return lambda text: "\n".join(change(line) for line in text.split("\n"))


def realigned(gap: int, *, right: bool = False) -> Style:
    """Columns made as wide as their widest cell by hand; only for tables without empty cells."""

    def style(table: str) -> str:
        rows = [[cell.strip() for cell in line.split("\t")] for line in table.split("\n")]
        rows = [rows[0], *([row[0], *(cell for cell in row[1:] if cell)] for row in rows[1:])]
        widths = [max(len(row[index]) for row in rows if index < len(row)) for index in range(len(rows[0]))]
        pad = str.rjust if right else str.ljust
        return "\n".join(
            (" " * gap).join(pad(cell, width) for cell, width in zip(row, widths, strict=False)) for row in rows
        )

    return style


def markdown(table: str) -> str:
    lines = re.sub(r"\t+", "\t", table).split("\n")
    heading = table.split("\n")[0].split("\t")
    drawn = [f"| {' | '.join(heading)} |", "|" + "---|" * len(heading)]
    drawn += [f"| {' | '.join(cell.strip() for cell in line.split(chr(9)))} |" for line in lines[1:]]
    return "\n".join(drawn)


def latex(table: str) -> str:
    rows = [
        [cell.strip().replace("_", "\\_").replace("-", "--") for cell in line.split("\t")]
        for line in re.sub(r"\t+", "\t", table).split("\n")
    ]
    drawn = [" & ".join([f"\\textbf{{{row[0]}}}", *row[1:]]) + " \\\\ \\cline{1-2}" for row in rows if any(row)]
    return "\n".join(["\\begin{tabular}{l}", "\\toprule", *drawn, "\\bottomrule", "\\end{tabular}"])


def glued_header(table: str) -> str:
    heading, newline, rows = table.partition("\n")
    return re.sub(r"\t(?=GPU\d|NIC\d|mlx5)", "", heading) + newline + rows


def underlined(before: str, after: str) -> Style:
    return lambda table: re.sub(r"^\t([^\n]*)", lambda match: f"\t{before}{match[1]}{after}", table)


def without_leading_tab(table: str) -> str:
    return table.removeprefix("\t")


P2P = "\n$ nvidia-smi topo -p2p r\n \tGPU0\tGPU1\t\n GPU0\tX\tCNS\t\n GPU1\tCNS\tX\t\n\nLegend:\n\n  X    = Self\n"


def numbered(form: str) -> Style:
    return lambda text: "\n".join(form.format(number) + line for number, line in enumerate(text.split("\n"), 1))


def broken(width: int, *, at_spaces: bool = False) -> Style:
    """As a terminal of this width shows it, or a mail program that breaks lines at spaces."""

    def style(text: str) -> str:
        lines: list[str] = []
        for line in text.expandtabs(8).split("\n"):
            if at_spaces:
                lines += textwrap.wrap(line, width, break_long_words=False, replace_whitespace=False) or [""]
            else:
                lines += [line[start : start + width] for start in range(0, len(line), width)] or [""]
        return "\n".join(lines)

    return style


def rows(table: str) -> list[list[str]]:
    """All cells, those of one row as many as those of every other."""
    found = [[cell.strip() for cell in re.sub(r"\t\t(?=N/A|\d)", "\t", line).split("\t")] for line in table.split("\n")]
    width = max(map(len, found))
    return [[*row, *[""] * (width - len(row))] for row in found]


def html_table(table: str) -> str:
    lines = ["".join(f"<td>{cell}</td>" for cell in row) for row in rows(table)]
    return "<table>\n" + "\n".join(f"<tr>{line}</tr>" for line in lines) + "\n</table>"


def boxed(table: str) -> str:
    cells = rows(table)
    widths = [max(len(row[place]) for row in cells) for place in range(len(cells[0]))]
    bar = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    lines = [
        "|" + "|".join(f" {cell:<{width}} " for cell, width in zip(row, widths, strict=True)) + "|" for row in cells
    ]
    return "\n".join([bar, *(f"{line}\n{bar}" for line in lines)])


def bare_markdown(table: str) -> str:
    heading, *others = [" | ".join(row) for row in rows(table)]
    return "\n".join([heading, re.sub(r"[^|]+", ":-:", heading), *others])


def coloured(table: str) -> str:
    return re.sub(r"\b(NV\d+|PIX|PXB|SYS|NODE|PHB)\b", "\x1b[38;2;118;185;0m\\1\x1b[39m", table)


ANY_MATRIX: dict[str, Style] = {
    "as printed": str,
    "tabs expanded": lambda text: text.expandtabs(8),
    "tabs expanded, indented": lambda text: each_line(lambda line: "    " + line)(text.expandtabs(8)),
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "CR": lambda text: text.replace("\n", "\r"),
    "underlined header": underlined("\x1b[4m", "\x1b[0m"),
    "residue of the underline": underlined("[4m", "[0m"),
    "underline through cat -v": underlined("^[[4m", "^[[0m"),
    "comment": each_line(lambda line: "# " + line),
    "quotation": each_line(lambda line: "> " + line),
    "list item": lambda text: "* Topology:\n\n" + each_line(lambda line: "    " + line)(text),
    "diff": each_line(lambda line: "+" + line),
    "job rank": each_line(lambda line: "0: " + line),
    "log": each_line(lambda line: "2031-01-02 03:04:05,678 [worker-3] INFO " + line),
    "container log": each_line(lambda line: "trainer-1  | " + line),
    "fence": lambda text: f"Here it is:\n\n```text\n{text}```\nWhat now?\n",
    "prompt": lambda text: f"(base) user@host1:~/gpu0$ nvidia-smi topo -m\n{text}(base) user@host1:~$ \n",
    "other languages": lambda text: (
        f"显卡拓扑如下：\n토폴로지 결과입니다\n\n{text}\nA topologia é esta, não é? NV12 → GPU0\n"
    ),
    "after -L": lambda text: "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-00000000-0000-0000-0000-000000000000)\n" + text,
    "before p2p": lambda text: text + P2P,
    "trailing blanks": each_line(lambda line: line + " \t  "),
    "string literal": lambda text: '  text := "' + text.replace("\t", "\\t").replace("\n", "\\n") + '"\n',
    "no tab in front": table_only(without_leading_tab),
    "glued header": table_only(glued_header),
    "no legends": lambda text: text,
    "line numbers": numbered("{:>6}\t"),
    "line numbers of grep": numbered("topo.txt:{}:"),
    "line numbers and a bar": numbered("{:>4} | "),
    "quotation of a quotation": each_line(lambda line: ">> " + line),
    "timestamp": each_line(lambda line: "2031-05-06T07:08:09.123456789Z " + line),
    "journal": each_line(lambda line: "Jan 02 03:04:05 node7 bash[1234]: " + line),
    "pod": each_line(lambda line: "[pod/trainer-0/main] " + line),
    "rank and colour": each_line(lambda line: "\x1b[36m(Worker pid=1234, ip=10.0.0.1)\x1b[0m " + line),
    "mpirun": each_line(lambda line: "[1,0]<stdout>:" + line),
    "pre and code": lambda text: f"<pre><code>{text}</code></pre>\n",
    "br": each_line(lambda line: line + "<br>"),
    "entities": lambda text: text.replace("\t", "&#9;"),
    "entities of spaces": lambda text: text.expandtabs(8).replace("  ", "&#160; "),
    "cat -A": lambda text: "\n".join(line.replace("\t", "^I") + "$" for line in text.split("\n")),
    "line ends of Windows through cat -v": each_line(lambda line: line + "^M"),
    "lines of JSON": lambda text: json.dumps({"stdout_lines": text.split("\n")}, indent=2),
    "JSON": lambda text: json.dumps({"stdout_lines": text.split("\n")}),
    "list of strings": lambda text: repr(text.split("\n")),
    "tput": underlined("\x1b[4m", "\x1b(B\x1b[m"),
    "an arrow for the escape": underlined("\u2190[4m", "\u2190[0m"),
    "a question mark for the escape": underlined("?[4m", "?[0m"),
    "colours": table_only(coloured),
    "typographic quotes": each_line(lambda line: f"\u201c{line}\u201d"),
    "typographic dashes": lambda text: re.sub(r"(\d)-(\d)", "\\1\u2013\\2", text),
    "between bars": each_line(lambda line: f"\u2502 {line.expandtabs(8):<300}\u2502"),
    "escapes of Markdown": lambda text: text.replace("_", r"\_"),
    "form feeds": lambda text: text.replace("\n", "\n\x0c"),
    "empty lines between": lambda text: text.replace("\n", "\n\n"),
}
FULL_MATRIX: dict[str, Style] = {
    "one space": table_only(lambda table: re.sub(r"[ \t]+", " ", table)),
    "one space, quoted": each_line(lambda line: "> " + re.sub(r"[ \t]+", " ", line)),
    "two tabs": table_only(lambda table: re.sub(r"\t+", "\t\t", table)),
    "realigned": table_only(realigned(2)),
    "realigned to the right": table_only(realigned(3, right=True)),
    "markdown": table_only(markdown),
    "LaTeX": table_only(latex),
    "non-breaking spaces": lambda text: text.expandtabs(8).replace("  ", "\xa0 "),
    "HTML table": table_only(html_table),
    "box": table_only(boxed),
    "markdown without outer bars": table_only(bare_markdown),
    **{f"terminal of {width} columns": broken(width) for width in (80, 100, 132)},
    "mail of 80 columns": broken(80, at_spaces=True),
    "small x": table_only(lambda table: table.replace("\t X ", "\t x ")),
    "colons behind labels": table_only(lambda table: re.sub(r"^(\w+\d)\t", r"\1:\t", table, flags=re.M)),
    "remarks behind rows": table_only(lambda table: re.sub(r"^(GPU\d+\t.*)$", r"\1   # 80GB", table, flags=re.M)),
}


def read_back(text: str) -> Matrix:
    """The only matrix of a text, without the line where it was found."""
    (matrix,) = topo_matrix.parse(text, file="paste")
    return msgspec.structs.replace(matrix, first_line=None)


ONE_TEXT = ("CR", "string literal", "JSON", "list of strings", "lines of JSON")
"""Styles of a text as a whole, which another style behind them would break."""

QUICK = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


@pytest.mark.parametrize("style", ANY_MATRIX.values(), ids=ANY_MATRIX)
def test_any_matrix_comes_back(style: Style) -> None:
    @QUICK
    @given(matrices())
    def comes_back(matrix: Matrix) -> None:
        assert read_back(style(printed(matrix))) == matrix

    comes_back()


@pytest.mark.parametrize("style", FULL_MATRIX.values(), ids=FULL_MATRIX)
def test_a_matrix_without_empty_cells_comes_back_even_from_hand_made_columns(style: Style) -> None:
    @QUICK
    @given(matrices(blanks=False))
    def comes_back(matrix: Matrix) -> None:
        assert read_back(style(printed(matrix))) == matrix

    comes_back()


@QUICK
@given(matrices(), matrices(), st.sampled_from([ANY_MATRIX[name] for name in ANY_MATRIX if name not in ONE_TEXT]))
def test_several_machines_in_one_text(first: Matrix, second: Matrix, style: Style) -> None:
    text = f"node-a:\n{style(printed(first))}\nnode-b:\n{printed(second)}"
    found = [
        msgspec.structs.replace(matrix, first_line=None, other_machine=False)
        for matrix in topo_matrix.parse(text, file="paste")
    ]
    assert found == [first, second]


@QUICK
@given(matrices(), st.data())
def test_a_text_cut_anywhere_never_gives_a_cell_that_was_not_there(matrix: Matrix, data: st.DataObject) -> None:
    text = printed(matrix)
    cut = data.draw(st.integers(0, len(text)))
    try:
        found = read_back(text[:cut])
    except topo_matrix.InputError:
        return
    for row, cells in found.cells.items():
        assert cells.items() <= matrix.cells[row].items()
