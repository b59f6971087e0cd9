"""Code blocks of the documentation, with the comments that say how they are run.

A block is run unless the comment before it says otherwise:

    <!-- run by tests/test_telemetry_docs.py -->   that test reads the page and runs the block
    <!-- not run: needs Azure -->                  with the reason

Blocks of the language `text` are output, and those of `dot` are diagrams: neither is code.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(
    r"(?:^[ ]*<!-- (?P<comment>.*?) -->\n\n?)?"
    r"^(?P<indent>[ ]*)```(?P<language>[^\n]*)\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
NOT_CODE = ("text", "dot")
OPERATORS = (">", "&", "|", "&&")


@dataclass(frozen=True, slots=True)
class Block:
    """A code block: its page, its line there, its language, its code, and the comment before it."""

    page: str
    line: int
    language: str
    code: str
    comment: str | None

    @property
    def is_code(self) -> bool:
        return self.language not in NOT_CODE and not self.language.startswith("{")

    @property
    def runner(self) -> str | None:
        """The test file that runs the block, if the comment names one."""
        word, _, name = (self.comment or "").partition("run by ")
        return name if not word and name else None

    @property
    def excuse(self) -> str | None:
        """The reason why the block is not run, if the comment has one."""
        word, _, reason = (self.comment or "").partition("not run: ")
        return reason if not word and reason else None

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(text: str, page: str) -> Iterator[Block]:
    """Yield the blocks of a page in order."""
    for match in FENCE.finditer(text):
        indent = len(match["indent"])
        code = "".join(line[indent:] for line in match["code"].splitlines(keepends=True))
        line = text.count("\n", 0, match.start("indent")) + 1
        yield Block(page, line, match["language"], code, match["comment"])


def read_blocks(path: Path) -> list[Block]:
    return list(blocks_of(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix()))


def pages() -> list[Path]:
    """Return the pages whose blocks are checked."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def pairbus_commands(code: str) -> list[list[str]]:
    """Return the arguments of each call of `pairbus` in a block for a shell. Variables before a
    command, comments, prompts and redirections are left out."""
    commands = []
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line.removeprefix("$ "), comments=True)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words = words[1:]
        if words[:1] == ["pairbus"]:
            end = next((index for index, word in enumerate(words) if word in OPERATORS), None)
            commands.append(words[1:end])
    return commands
