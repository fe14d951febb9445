"""Cuts PTX text into statements, and statements into operands."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from ortisan.emulator.syntax import PtxError

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_LINE_DIRECTIVE = re.compile(r"\.(version|target|address_size|file|loc)\b[^\n]*")
_LABEL = re.compile(r"([A-Za-z_$%][\w$]*)\s*:(?!:)")
_HEADER = re.compile(r"(?:\.(?:visible|extern|weak|common|noreturn)\s+)*\.(?:entry|func)\b")
_END = re.compile(r"[;{}]")
_SPACE = re.compile(r"\s*")


@dataclass(frozen=True)
class Statement:
    """`kind` is "{", "}", "label", "directive" (one line), "header" (of a function), "section" or "" (to a ";")."""

    kind: str
    text: str
    line: int
    end: int


def without_comments(text: str) -> str:
    """The text with blanks in the place of comments; lines stay where they are."""
    return _COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


class Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self._lines = [0] + [found.end() for found in re.finditer(r"\n", text)]

    def line(self, at: int) -> int:
        return bisect_right(self._lines, at)

    def statements(self, at: int = 0) -> Iterator[Statement]:
        text = self.text
        while True:
            at = _skip(text, at)
            if at >= len(text):
                return
            line = self.line(at)
            if text[at] in "{}":
                at += 1
                yield Statement(text[at - 1], "", line, at)
                continue
            if found := _LABEL.match(text, at):
                at = found.end()
                yield Statement("label", found[1], line, at)
                continue
            if found := _LINE_DIRECTIVE.match(text, at):
                at = found.end()
                yield Statement("directive", found[0].strip().rstrip(";"), line, at)
                continue
            kind, end = self._end(at, line)
            body = text[at:end].strip()
            at = end + (1 if kind != "header" else 0)
            yield Statement(kind, body, line, at)

    def _end(self, at: int, line: int) -> tuple[str, int]:
        """What kind of statement begins here, and where it ends."""
        text = self.text
        if text.startswith(".section", at):
            return "section", self.close(text.index("{", at), line)
        header = _HEADER.match(text, at) is not None
        depth = 0
        while True:
            found = _END.search(text, at)
            if found is None:
                raise PtxError(line, "the statement does not end")
            if text.startswith('"', at) or '"' in text[at : found.start()]:
                string = _STRING.search(text, at)
                if string is not None and string.start() < found.start():
                    at = string.end()
                    continue
            at = found.end()
            if found[0] == ";" and depth == 0:
                return ("header" if header else ""), found.start() + (1 if header else 0)
            if header and found[0] == "{":
                return "header", found.start()
            depth += {"{": 1, "}": -1, ";": 0}[found[0]]

    def close(self, at: int, line: int) -> int:
        """Where the brace that opens at `at` closes."""
        depth = 0
        for found in re.finditer(r'[{}]|"(?:[^"\\\n]|\\.)*"', self.text[at:]):
            depth += {"{": 1, "}": -1}.get(found[0], 0)
            if depth == 0:
                return at + found.start()
        raise PtxError(line, "a brace does not close")


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def split(text: str) -> list[str]:
    """Operands between commas that are in no brackets."""
    parts, depth, begin = [], 0, 0
    for at, char in enumerate(text):
        if char in "{[(":
            depth += 1
        elif char in "}])":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[begin:at].strip())
            begin = at + 1
    last = text[begin:].strip()
    return [*parts, last] if last or parts else []
