"""Shell scripts: which variables a script sets, for whom, and under which conditions."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final, Literal

from topoadvisor.lint.asked import differs
from topoadvisor.lint.model import Assignment, Branch, Contents, Remark, Repair, Unreadable, Way, watched
from topoadvisor.lint.pieces import Piece
from topoadvisor.lint.readers import launchers, shell_words
from topoadvisor.lint.readers.shell_frames import Frames
from topoadvisor.lint.readers.shell_words import Here, Part, Setting, Token, Word

_DECLARES: Final = frozenset({"export", "declare", "typeset", "readonly", "local"})
_PASSIVE: Final = frozenset({
    "export", "unset", "set", "shopt", "declare", "typeset", "readonly", "local", "source", ".", "module", "ml",
    "spack", "conda", "cd", "pushd", "popd", "echo", "printf", "cat", "tee", "mkdir", "rm", "cp", "mv", "ln",
    "chmod", "chown", "touch", "ulimit", "umask", "trap", "alias", "test", "[", "[[", ":", "true", "false",
    "return", "exit", "shift", "read", "eval", "which", "type", "command", "hash", "date", "hostname", "pwd", "ls",
    "sleep", "wait",
})  # fmt: skip
"""Commands that start nothing that communicates between GPUs."""
_SEES: Final = frozenset({"source", ".", "eval"})
"""Those of them that run something that could see a variable."""
_SILENT: Final = frozenset({
    "echo", "printf", "grep", "egrep", "sed", "awk", "test", "[", "[[", ":", "cat", "expr", "let", "alias", "man",
    "find", "rg",
})  # fmt: skip
"""Commands whose words are texts and set nothing."""
_WRAPPERS: Final = frozenset({"sudo", "exec", "nohup", "time", "command", "builtin"})
_FILES: Final = frozenset({">", ">>", ">|", "&>", "&>>"})
_INTO_CONTAINERS: Final = re.compile(r"(SINGULARITY|APPTAINER)ENV_")
"""Apptainer sets a variable of this beginning in its containers, without it."""
_SUBSTITUTED: Final = re.compile(r"\"?[<$]\((?P<commands>(?!\().*)\)\"?", re.S)
"""A word that is all `<( … )` or `$( … )`."""
_DEEPEST: Final = 12

_LONGEST_VALUE: Final = 300
"""Letters of a value that are looked at for what it is put together from."""


def read(piece: Piece, *, way: Way = "export", depth: int = 0) -> Contents:
    """Everything that a script sets. `way` is that of exported variables; `image` and others for embedded scripts."""
    contents = Contents()
    _Reader(piece, contents, way, depth).run()
    return contents


def add_carriage_returns(piece: Piece, contents: Contents) -> None:
    """A remark on the first value that a file with the line ends of Windows makes longer by a letter."""
    if "\r\n" not in piece.body:
        return
    ended = re.compile(r"[\"']?\r\n")
    ends = [each for each in contents.assignments if each.span and ended.match(piece.body, each.span[1])]
    if ends:
        first = min(ends, key=lambda each: each.at)
        message = (
            f"the lines end in CR LF, and a shell counts the CR to the value: {first.name} and whatever else ends a "
            "line get a letter more, with which no name of a device, interface or level fits"
        )
        contents.remarks.append(Remark("ENV112", first.at, message, first.name, "warning"))


def task_prolog(piece: Piece) -> Contents:
    """What Slurm's `TaskProlog` sets: the `export` lines that it prints, and nothing that it exports itself."""
    contents = Contents()
    _Reader(piece, contents, "plain", 0, prints=True).run()
    for each in [each for each in contents.assignments if each.way == "plain"]:
        message = f"Slurm takes from a task prolog only what it prints, such as `echo export {each.name}=…`"
        contents.remarks.append(Remark("ENV122", each.at, message, each.name))
        contents.assignments.remove(each)
    return contents


def merge(into: Contents, found: Contents, *, branch: Branch = (), at: int = 0) -> None:
    """Add what an embedded script sets, as something of its own that nothing outside meets."""
    into.assignments += [
        replace(each, branch=(*branch, (-1 - at, 0), *each.branch), group=each.group or -1 - at)
        for each in found.assignments
    ]
    into.launches += [(place, (*branch, (-1 - at, 0), *own)) for place, own in found.launches]
    into.remarks += found.remarks
    into.uses |= found.uses
    into.programs += found.programs


class _Reader:
    def __init__(self, piece: Piece, contents: Contents, way: Way, depth: int, *, prints: bool = False) -> None:
        self._piece = piece
        self._contents = contents
        self._way = way
        self._depth = depth
        self._prints = prints
        """What it prints is read as a script that others run."""
        self._frames = Frames(piece.body)
        self._step = 0
        self._printed: tuple[Piece, bool] | None = None
        """What the command before a pipe has printed."""
        self._script = shell_words.read(piece.body)

    def run(self) -> None:
        words: list[Word] = []
        redirections: list[Token] = []
        tokens = self._script.tokens
        place = 0
        while place < len(tokens):
            token = tokens[place]
            place += 1
            if token.word is not None:
                if self._frames.in_pattern():
                    self._frames.pattern_word(token)
                    continue
                if words or not self._frames.keyword(token, tokens, place):
                    words.append(token.word)
                else:
                    place = self._frames.after_header(token.word, tokens, place)
                continue
            if token.operator in ("<<", "<<-", *_FILES, "<", ">&", "<&", "<>", "<<<"):
                redirections.append(token)
                following = tokens[place] if place < len(tokens) else None
                if following is not None and following.word is not None and token.operator not in ("<<", "<<-"):
                    token.word = following.word
                    place += 1
                continue
            if token.operator == "(" and len(words) == 1 and self._is(tokens, place, ")"):
                place += 1
                words = []
                self._frames.function(token.start)
                continue
            self._command(words, redirections, piped=token.operator == "|")
            words, redirections = [], []
            self._frames.separator(token)
        self._command(words, redirections, piped=False)
        own = self._own_uses()
        self._contents.uses |= {name for name, at in self._script.uses if (name, at) not in own}
        for name, text, start, end in self._script.defaults:
            if watched(name):
                self._add(Setting(name, text, start - len(name) - 2, (start, end), fallback=True), "plain", start)
        if self._depth < _DEEPEST:
            for start, end in self._script.inside:
                inner = read(self._piece.cut(start, end), way="plain", depth=self._depth + 1)
                inner.assignments = [each for each in inner.assignments if each.way != "plain"]
                merge(self._contents, inner, at=self._piece.at(start))

    def _own_uses(self) -> set[tuple[str, int]]:
        """`NAME=${NAME:-1}`: a use by which a script only keeps what is set."""
        own = set()
        for token in self._script.tokens:
            found = shell_words.setting(token.word) if token.word else None
            if found is not None and token.word is not None:
                own |= {
                    (name, at)
                    for name, at in self._script.uses
                    if name == found.name and token.word.start <= at < token.word.end
                }
        return own

    @staticmethod
    def _is(tokens: list[Token], place: int, operator: str) -> bool:
        return place < len(tokens) and tokens[place].operator == operator

    def _command(self, words: list[Word], redirections: list[Token], *, piped: bool) -> None:
        printed, self._printed = self._printed, None
        if not words:
            return
        start = words[0].start
        leading = []
        while words and (found := shell_words.setting(words[0])) is not None:
            leading.append((found, words[0]))
            words = words[1:]
        if not words:
            for found, word in leading:
                self._add(found, "plain", start)
                self._options_inside(word, start)
            return
        self._set_apart([word for _, word in leading] + words, start, exports=False)
        place = next((place for place, word in enumerate(words) if not _is_wrapper(word)), 0)
        name, own = _basename(words[place]), words[place + 1 :]
        programs = tuple(filter(None, map(_basename, words)))
        if any(program in launchers.STARTS_RANKS for program in programs):
            self._contents.launches.append((self._piece.at(start), self._frames.branch()))
        if name not in _PASSIVE:
            self._step += 1
            self._contents.programs += 1
        if name not in _PASSIVE or name in _SEES:
            self._contents.last_command = self._piece.at(start)
        self._contents.runs_jobs |= any(
            program in launchers.STARTS_RANKS | launchers.STARTS_RANKS_HERE for program in programs
        )
        for found, _ in leading:
            self._add(found, "command", start, group=start + 1, programs=programs)
        self._files(name, own, start, redirections, printed, piped)
        match name:
            case "export" | "declare" | "typeset" | "readonly" | "local":
                self._declare(name, own, start)
            case "setenv" if len(own) >= 2 and own[0].text:
                span = own[1].parts[0].inner if len(own[1].parts) == 1 else None
                self._add(Setting(own[0].text, own[1].text, own[0].start, span), self._way, start)
            case "unset":
                texts = [word.text for word in own]
                self._contents.removed += [(self._piece.at(start), text) for text in texts if text]
            case "set" if len(own) >= 3 and re.fullmatch(r"-[gU]*x[gU]*", own[0].text or ""):  # fish
                self._add(Setting(own[1].text or "", own[2].text, own[1].start, None), self._way, start)
            case "set":
                flags = [word.text or "" for word in own]
                self._contents.exports_all |= any(re.fullmatch(r"-[a-z]*a[a-z]*|allexport", flag) for flag in flags)
            case "source" | "." | "eval" if own and (printer := self._substituted(own[0])) is not None:
                self._run_printed(printer)
            case _ if name in _SILENT:
                pass
            case _:
                self._handed_over(words, start, programs)

    def _substituted(self, word: Word) -> re.Match[str] | None:
        return _SUBSTITUTED.fullmatch(self._piece.body, word.start, word.end)

    def _run_printed(self, printer: re.Match[str]) -> None:
        """`source <(…)` and `eval "$(…)"`: the shell runs what the commands inside print."""
        if self._depth >= _DEEPEST:
            return
        printed = Contents()
        _Reader(self._piece.cut(*printer.span("commands")), printed, "plain", self._depth + 1, prints=True).run()
        printed.assignments = [replace(each, way=self._way) for each in printed.assignments if each.way == "export"]
        merge(self._contents, printed, branch=self._frames.branch(), at=self._piece.at(printer.start()))

    def _declare(self, name: str, words: list[Word], start: int) -> None:
        flags = [word.text or "" for word in words if (word.text or "").startswith(("-", "+"))]
        if name == "export":
            exports = not any("n" in flag for flag in flags)
        else:
            exports = any("x" in flag and flag.startswith("-") for flag in flags)
        self._set_apart(words, start, exports=True)
        for word in words:
            found = shell_words.setting(word)
            if found is not None:
                self._add(found, self._way if exports else "plain", start)
                self._options_inside(word, start)
            elif exports and word.text:
                self._contents.exported.add(word.text)

    def _set_apart(self, words: list[Word], start: int, *, exports: bool) -> None:
        """`NAME = VALUE` and `NAME= VALUE`, which look like settings to everybody but the shell."""
        for place, word in enumerate(words[:-1] if exports else words[:1]):
            following = words[place + 1 : place + 3]
            found = shell_words.setting(word)
            if found is None:
                sign = (following[0].parts[0].text or "") if following else ""
                if not watched(word.text or "") or not sign.startswith("="):
                    continue
                value = following[0].start + 1 if sign != "=" or len(following) < 2 else following[1].start
                name = word.text or ""
                message = (
                    f"export takes no blanks around `=`: it ends with an error, and {name} is not set"
                    if exports
                    else f"a shell takes no blanks around `=`: it looks for a program {name}, and sets nothing"
                )
            elif found.value == "" and watched(found.name) and following and _is_value(following[0], exports):
                value, name = following[0].start, found.name
                message = f"the blank behind `=` ends the value: {name} is empty"
            else:
                continue
            end = word.end if found is None else word.end - 1
            repair = None
            if (span := self._piece.span(end, value)) is not None:
                repair = Repair("take out the blanks", ((span, "="),))
            at = self._piece.at(word.start)
            self._contents.remarks.append(Remark("ENV122", at, message, name, "error", repair))

    def _handed_over(self, words: list[Word], start: int, programs: tuple[str, ...]) -> None:
        """Variables that a command passes on: `env`, launchers, containers, `bash -c`."""
        for given in launchers.given(words):
            way: Way = "command" if given.one_process else "launcher"
            if given.setting is not None:
                self._add(given.setting, way, start, group=start + 1, programs=programs)
            elif given.name:
                self._contents.exported.add(given.name)
            if given.cut_at is not None:
                self._contents.remarks.append(
                    Remark("ENV117", self._piece.at(given.cut_at), given.message, variable=given.name)
                )
        for word in words:
            quoted = word.parts[-1].inner if word.parts[-1].quoted else None
            if quoted is not None and self._piece.body.startswith("-", quoted[0]):
                self._options_inside(word, start)
        for word in launchers.scripts(words):
            span = word.parts[0].inner if len(word.parts) == 1 else None
            span = span or (word.start + 1, word.end - 1)
            if self._depth < _DEEPEST and span[1] > span[0]:
                inner = read(self._piece.cut(*span), way=self._way, depth=self._depth + 1)
                merge(self._contents, inner, branch=self._frames.branch(), at=self._piece.at(start))
        for word in launchers.python_texts(words):
            # Only a text in which the shell changes nothing.
            span = word.parts[0].inner if len(word.parts) == 1 else None
            if span is not None and (found := self._python(self._piece.cut(*span))) is not None:
                merge(self._contents, found, branch=self._frames.branch(), at=self._piece.at(start))

    @staticmethod
    def _python(piece: Piece) -> Contents | None:
        from topoadvisor.lint.readers import embedded

        try:
            return embedded.read(piece, "python")
        except Unreadable:
            return None

    def _options_inside(self, word: Word, start: int) -> None:
        """`-x NAME=VALUE` inside of a text or an array that a launcher gets later."""
        items = list(word.items)
        if not items and (inner := word.parts[-1].inner) is not None and word.parts[-1].quoted:
            text = self._piece.body[inner[0] : inner[1]]
            if not re.search(r"(?:^|\s)(-x|-e|--env|-genv)\s", text):
                return
            inside = shell_words.read(text)
            items += [_shifted(token.word, inner[0]) for token in inside.tokens if token.word is not None]
        for given in launchers.options(items):
            if given.setting is not None:
                self._add(given.setting, "launcher", start, group=start + 1)

    def _files(
        self,
        name: str,
        words: list[Word],
        start: int,
        redirections: list[Token],
        printed: tuple[Piece, bool] | None,
        piped: bool,
    ) -> None:
        """Files that the script writes, and scripts that it feeds to a shell, are read as what they are."""
        here = next((token.here for token in redirections if token.here is not None), None)
        target = next((token.word.text for token in redirections if token.operator in _FILES and token.word), None)
        if name == "tee":
            names = [word.text for word in words if word.text and not word.text.startswith("-")]
            target = names[0] if names else None
        content = self._here_piece(here) if here is not None else printed
        string = next((token.word for token in redirections if token.operator == "<<<" and token.word), None)
        if string is not None and len(string.parts) == 1:
            content = self._echoed("echo", [string])
        fed = content is not None
        if content is None and name in ("echo", "printf"):
            content = self._echoed(name, words)
        if content is None or self._depth >= _DEEPEST:
            return
        if piped and name in ("echo", "printf", "cat"):
            self._printed = content
        elif target:
            from topoadvisor.lint.readers import embedded

            found = embedded.read_named(target, content[0], expanded=content[1], depth=self._depth + 1)
            if found is not None:
                merge(self._contents, found, branch=self._frames.branch(), at=self._piece.at(start))
        elif (self._prints and name in ("echo", "printf", "cat")) or (fed and _reads(name, words) is not None):
            from topoadvisor.lint.readers import embedded

            kind = _reads(name, words) or "shell"
            try:
                if kind == "shell":
                    inner = read(content[0], way="export" if self._prints else self._way, depth=self._depth + 1)
                else:
                    inner = embedded.read(content[0], kind, depth=self._depth + 1)
            except Unreadable:
                return
            at = self._piece.at(start if here is None else here.start)
            merge(self._contents, inner, branch=self._frames.branch(), at=at)

    def _here_piece(self, here: Here) -> tuple[Piece, bool]:
        return self._piece.cut(here.start, here.end), not here.literal

    def _echoed(self, name: str, words: list[Word]) -> tuple[Piece, bool] | None:
        escapes = name == "printf"
        if self._prints and name == "echo" and len(words) > 1 and words[0].text == "export":
            return self._piece.cut(words[0].start, words[-1].end), True
        for word in words:
            if name == "echo" and word.text in ("-e", "-n", "-en", "-ne", "-E"):
                escapes |= "e" in word.text
                continue
            part = word.parts[0]
            if len(word.parts) != 1:
                return None
            inner = part.inner or ((part.start + 1, part.end - 1) if part.quoted else None)
            if inner is None or inner[1] <= inner[0]:
                return None
            piece = self._piece.cut(*inner)
            if escapes:
                piece = piece.written(piece.body.replace("\\n", "\n\n"))
            return piece, self._piece.body[part.start] != "'"
        return None

    def _add(self, found: Setting, way: Way, start: int, *, group: int = 0, programs: tuple[str, ...] = ()) -> None:
        if (beginning := _INTO_CONTAINERS.match(found.name)) is not None:
            found = replace(found, name=found.name[beginning.end() :], at=found.at + beginning.end())
            way = "launcher"
        if not watched(found.name):
            return
        if found.home:
            found = replace(found, value=None)
        computed = (
            re.match(r"\S*", self._piece.body[found.at : found.at + _LONGEST_VALUE]) if found.value is None else None
        )
        read = replace(
            assignment(self._piece, found, way, start),
            branch=self._frames.branch(),
            step=self._step,
            group=self._piece.at(group - 1) + 1 if group else 0,
            only=(computed and differs(computed[0])) or self._frames.only(),
            programs=programs,
        )
        self._contents.assignments.append(read)


def assignment(piece: Piece, found: Setting, way: Way, start: int = 0) -> Assignment:
    """A word of a piece as something that is set; `start` is where its statement begins there."""
    return Assignment(
        name=found.name,
        value=found.value,
        at=piece.at(found.at),
        span=piece.span(*found.span) if found.span else None,
        way=way,
        fallback=found.fallback,
        statement=piece.at(start),
    )


def _reads(name: str, words: list[Word]) -> Literal["shell", "python", "yaml"] | None:
    """What a program takes its standard input for."""
    if name in ("source", ".") and words and words[0].text in ("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"):
        return "shell"
    if name in launchers.SHELLS or name in ("sbatch", "ssh", "srun", "salloc", "qsub"):
        return "shell"
    if re.fullmatch(r"python[0-9.]*", name):
        return "python"
    return "yaml" if name in ("kubectl", "oc") else None


def _is_value(word: Word, exports: bool) -> bool:
    """Whether what stands behind `NAME= ` is rather a value than a name to export, or a program."""
    text = word.text or ""
    if not exports:
        return text.isdigit()
    return shell_words.setting(word) is None and text != "" and not (text.isidentifier() and text.isupper())


def _is_wrapper(word: Word) -> bool:
    """`sudo -E` and its like, which stand in front of the command that counts."""
    return _basename(word) in _WRAPPERS or (word.text or "").startswith("-")


def _basename(word: Word) -> str:
    """The name of a program, also behind a folder that only the shell knows."""
    texts = [part.text for part in word.parts]
    return (word.text or (texts[-1] if texts else None) or "").rpartition("/")[2]


def _shifted(word: Word, by: int) -> Word:
    def moved(span: tuple[int, int] | None) -> tuple[int, int] | None:
        return (span[0] + by, span[1] + by) if span else None

    def moved_part(part: Part) -> Part:
        return replace(
            part,
            start=part.start + by,
            end=part.end + by,
            inner=moved(part.inner),
            fallback=(part.fallback[0], part.fallback[1] + by, part.fallback[2] + by) if part.fallback else None,
            pieces=tuple(map(moved_part, part.pieces)),
        )

    parts = tuple(map(moved_part, word.parts))
    return Word(word.start + by, word.end + by, parts, tuple(_shifted(item, by) for item in word.items))


def add_directives(piece: Piece, contents: Contents) -> None:
    """Variables in `#SBATCH` and `#PBS` lines, which the batch system reads out of the comments."""
    for match in re.finditer(r"^#(?:SBATCH|PBS|BSUB|\$)[ \t]+(.*)$", piece.body, re.M):
        words = [_shifted(token.word, match.start(1)) for token in shell_words.read(match[1]).tokens if token.word]
        for given in launchers.batch_options(words):
            if given.setting is not None and watched(given.setting.name):
                contents.assignments.append(assignment(piece, given.setting, "export", match.start()))
            if given.cut_at is not None:
                contents.remarks.append(Remark("ENV117", piece.at(given.cut_at), given.message, variable=given.name))
