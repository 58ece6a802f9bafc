"""How launchers, batch systems and containers are told variables on their command lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from topoadvisor.lint import pieces
from topoadvisor.lint.model import watched
from topoadvisor.lint.pieces import Piece
from topoadvisor.lint.readers import shell_words
from topoadvisor.lint.readers.shell_words import Part, Setting, Word

SHELLS: Final = frozenset({"bash", "sh", "zsh", "dash", "ksh"})
_MPI: Final = frozenset({"mpirun", "mpiexec", "orterun", "prun", "mpiexec.hydra", "mpirun_rsh", "horovodrun", "oshrun"})
_CONTAINERS: Final = frozenset({"docker", "podman", "nerdctl", "docker-compose", "nvidia-docker"})
_SLURM: Final = frozenset({"srun", "sbatch", "salloc"})
STARTS_RANKS: Final = _MPI | _SLURM
"""Programs that start the ranks of a job on all hosts."""
_EXPANDED: Final = "\ue000"
"""Stands for every letter of what a shell expands."""
STARTS_RANKS_HERE: Final = frozenset({"torchrun", "deepspeed", "accelerate", "colossalai"})
"""Programs that start the ranks of one host."""
_TAKES_ENV: Final = frozenset({"flux", "jsrun", "aprun"})
_TAKES_WORD: Final = {
    "env": frozenset({"-u", "--unset", "-C", "--chdir", "-S", "--split-string"}),
    "sudo": frozenset({"-u", "-g", "-h", "-p", "-C", "-D", "-R", "-T", "-U", "-r", "-t"}),
}
"""Options that have a word of their own."""
_SINGULARITY: Final = frozenset({"singularity", "apptainer"})


@dataclass(frozen=True)
class Given:
    """A variable that a command line hands over, or the name of one that it hands on as it is."""

    setting: Setting | None = None
    name: str = ""
    one_process: bool = False
    """For the command itself, and not for all ranks that it starts."""
    cut_at: int | None = None
    """Where a comma inside of the value cuts it."""
    message: str = ""


def given(words: list[Word]) -> Iterator[Given]:
    """Every variable that a command hands over."""
    names = [(word.text or "").rpartition("/")[2] for word in words]
    # What begins with an option is a stretch of a command that is put together elsewhere.
    if any(name in _MPI for name in names) or names[0].startswith("-"):
        yield from options(words)
    if any(name in _CONTAINERS for name in names):
        yield from _valued(words, ("-e", "--env"))
    if any(name in _SLURM for name in names):
        yield from (each for word in _values(words, ("--export",)) for each in comma_list(word))
    if any(name in _SINGULARITY for name in names):
        yield from (each for word in _values(words, ("--env",)) for each in comma_list(word))
    if "qsub" in names:
        yield from (each for word in _values(words, ("-v",)) for each in comma_list(word))
    if (names[0] == "kubectl" and "env" in names) or names[0] == "mpirun_rsh":
        yield from (Given(found) for word in words if (found := shell_words.setting(word)))
    if any(name in _TAKES_ENV for name in names):
        yield from _valued(words, ("--env", "-e", "-E"))
    for place, name in enumerate(names):
        if name in _TAKES_WORD:
            yield from (Given(found, one_process=True) for found in _in_front(words[place + 1 :], _TAKES_WORD[name]))


def _in_front(words: list[Word], with_word: frozenset[str]) -> Iterator[Setting]:
    """What `env` and `sudo` set: the words before the command, without options and the words that belong to them."""
    skipped = False
    for word in words:
        if skipped or word.text in with_word:
            skipped = not skipped
            continue
        found = shell_words.setting(word)
        if found is not None:
            yield found
        elif not (word.text or "-").startswith("-"):
            return


def options(words: list[Word]) -> Iterator[Given]:
    """`-x NAME=VALUE`, `-x NAME`, `-genv NAME VALUE` and their like."""
    yield from _valued(words, ("-x", "-genv", "-env", "--genv", "--env", "-e"))
    for place, word in enumerate(words[:-2]):
        name, value = words[place + 1], words[place + 2]
        if word.text in ("-genv", "-env", "--genv") and name.text and "=" not in name.text:
            span = value.parts[0].inner if len(value.parts) == 1 else None
            yield Given(Setting(name.text, value.text, name.start, span))


def batch_options(words: list[Word]) -> Iterator[Given]:
    """What a line of a batch script's header hands over."""
    yield from (each for word in _values(words, ("--export", "-v", "-env")) for each in comma_list(word))


def _valued(words: list[Word], flags: tuple[str, ...]) -> Iterator[Given]:
    for word in _values(words, flags):
        found = shell_words.setting(word)
        yield Given(found) if found is not None else Given(name=word.text or "")


def _values(words: list[Word], flags: tuple[str, ...]) -> Iterator[Word]:
    """What stands behind an option, after a blank or a `=`."""
    for place, word in enumerate(words):
        if word.text in flags and place + 1 < len(words):
            yield words[place + 1]
        for flag in flags:
            if flag.startswith("--") and word.pieces and (word.pieces[0].text or "").startswith(f"{flag}="):
                yield _behind(word, len(flag) + 1)


def _behind(word: Word, count: int) -> Word:
    """The word without its first letters."""
    first, *others = word.pieces
    text = (first.text or "")[count:]
    begin = (first.inner[0] if first.inner else first.start) + count
    end = first.inner[1] if first.inner else first.end
    parts = (replace(first, start=begin, text=text, inner=(begin, end) if first.inner else None),) if text else ()
    return Word(begin, word.end, (*parts, *others))


def comma_list(word: Word) -> Iterator[Given]:
    """`ALL,NAME=VALUE,NAME`: a comma inside of a value ends it, unless it has quotes within those of the shell."""
    text, places = "", [word.start]
    for part in word.pieces:
        stretch = _EXPANDED * (part.end - part.start) if part.text is None else part.text
        begin = part.inner[0] if part.text is not None and part.inner else part.start
        places[len(text) :] = range(begin, begin + len(stretch) + 1)
        text += stretch
    previous: Setting | None = None
    for piece, offset in _pieces(text):
        inside = (places[offset], places[offset] + len(piece))
        whole = places[offset + len(piece) - 1] + 1 == inside[1]
        found = shell_words.setting(Word(*inside, (Part(*inside, piece, inside),)))
        if found is not None:
            bare = piece[len(found.name) + 1 :]
            if len(bare) >= 2 and bare[0] == bare[-1] and bare[0] in "'\"":
                found = replace(found, value=bare[1:-1], span=(inside[1] - len(bare) + 1, inside[1] - 1))
            if _EXPANDED in piece or not whole:
                found = replace(found, value=None if _EXPANDED in piece else found.value, span=None)
            yield Given(found)
            previous = found
        elif (
            previous is not None and watched(previous.name) and _EXPANDED not in piece and not piece.isupper() and piece
        ):
            only = "" if previous.value is None else f", which is only `{previous.value}`"
            yield Given(
                name=previous.name,
                cut_at=inside[0],
                message=f"the comma ends the value of {previous.name}{only}, and `{piece}` counts as the name of "
                "another variable",
            )
        else:
            yield Given(name=piece)


def _pieces(text: str) -> Iterator[tuple[str, int]]:
    start, quote = 0, ""
    for index, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == ",":
            yield text[start:index], start
            start = index + 1
    yield text[start:], start


def scripts(words: list[Word]) -> Iterator[Word]:
    """The script of every `bash -c '…'`, `env -S '…'`, `eval '…'` and `ssh host '…'`."""
    first = (words[0].text or "").rpartition("/")[2] if words else ""
    if first == "eval" or (first == "ssh" and not any(word.text in SHELLS for word in words)):
        yield from (word for word in words[1:] if len(word.parts) == 1 and word.parts[0].quoted)
    yield from (
        following
        for word, following in pairwise(words)
        if word.text in ("-S", "--split-string") and first in _TAKES_WORD and following.parts
    )
    for place, word in enumerate(words[:-2]):
        flag = words[place + 1].text or ""
        shell = (word.text or "").rpartition("/")[2] in SHELLS
        if shell and flag.startswith("-") and not flag.startswith("--") and "c" in flag and words[place + 2].parts:
            yield words[place + 2]


def python_texts(words: list[Word]) -> Iterator[Word]:
    """The program of every `python -c '…'`."""
    for place, word in enumerate(words[:-2]):
        program = (word.text or "").rpartition("/")[2]
        if re.fullmatch(r"python[0-9.]*", program) and words[place + 1].text == "-c" and words[place + 2].parts:
            yield words[place + 2]


def written_out(words: Iterable[tuple[str, int] | None]) -> Piece:
    """A command that is a list of texts, as a shell would be given it.

    Each word with the offset of its first letter in the file; None = a word that is only known when it runs.
    """
    stretches: list[tuple[str, int]] = []
    last = 0
    for word in words:
        if word is None or "'" in word[0]:
            stretches.append((' "$x"', last if word is None else word[1]))
            continue
        text, at = word
        stretches += [(" '", max(at - 2, 0)), (text, at), ("'", at + len(text))]
        last = at + len(text)
    return pieces.joined(stretches)
