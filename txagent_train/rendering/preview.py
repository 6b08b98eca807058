"""A rendered sample for the eye: its tokens as text again, each marked as trained on or not, as control token or not.

Tokens of a byte-level vocabulary may hold part of a character. Such tokens are shown together, with the character that
they make up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby

from txagent_train.core.records import RenderedExample
from txagent_train.rendering.tokenizer import TextTokenizer

_BIDI = {*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C}
_UNSEEN = {*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0xD800, 0xE000), *_BIDI} - {ord("\n"), ord("\t")}


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens that are shown together. ``control``: they are control tokens, not text."""

    text: str
    ids: tuple[int, ...]
    trained: bool
    control: bool


@dataclass(frozen=True, slots=True)
class Line:
    """Text on one line, without its end. It is trained on as a whole or not at all, so that a mark in the margin says
    which. ``goes_on``: it begins in the middle of a line of the text."""

    pieces: tuple[Piece, ...]
    goes_on: bool

    @property
    def trained(self) -> bool:
        return self.pieces[0].trained


class Preview:
    """Shows samples of one tokenizer."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._controls = {int(number): str(token.content) for number, token in tokenizer.added_tokens_decoder.items()}
        self._tokens = {number: token for token, number in tokenizer.get_vocab().items()}

    def tokens(self, example: RenderedExample) -> list[Piece]:
        """The sample token by token; tokens that only together make a character are one piece.

        A piece never spans the border between prompt and output: a character cut there is shown as U+FFFD.
        """
        pieces: list[Piece] = []
        start = 0
        pending = b""
        ids, mask = example.input_ids, example.loss_mask
        for place, number in enumerate(ids):
            pending += self._bytes(number)
            last = place + 1 == len(ids)
            border = last or mask[place + 1] != mask[place] or self.is_control(ids[place + 1])
            if border or self.is_control(number) or _is_whole(pending):
                text = pending.decode("utf-8", errors="replace")
                pieces.append(Piece(text, ids[start : place + 1], mask[place], self.is_control(number)))
                start, pending = place + 1, b""
        return pieces

    def runs(self, example: RenderedExample) -> list[Piece]:
        """The sample in runs of text that are trained on, or not; each control token is a piece of its own."""
        runs: list[Piece] = []
        for _, group in groupby(enumerate(self.tokens(example)), key=_run_key):
            pieces = [piece for _, piece in group]
            ids = tuple(number for piece in pieces for number in piece.ids)
            runs.append(Piece("".join(piece.text for piece in pieces), ids, pieces[0].trained, pieces[0].control))
        return runs

    def is_control(self, number: int) -> bool:
        """Whether a token is a control token: an added one, which no text gives."""
        return number in self._controls

    def _bytes(self, number: int) -> bytes:
        control = self._controls.get(number)
        if control is not None:
            return control.encode()
        alphabet = _byte_alphabet()
        token = self._tokens[number]
        return b"".join(alphabet.get(letter) or letter.encode() for letter in token)


def _run_key(item: tuple[int, Piece]) -> tuple[bool, int]:
    place, piece = item
    return piece.trained, place if piece.control else -1


def lines(pieces: Iterable[Piece]) -> Iterator[Line]:
    """Pieces as lines, each ending where a line of the text ends, or where what is trained on begins or ends."""
    line: list[Piece] = []
    goes_on = False
    for piece in pieces:
        if line and line[0].trained != piece.trained:
            yield Line(tuple(line), goes_on)
            line, goes_on = [], True
        *ended, rest = piece.text.split("\n")
        for text in ended:
            yield Line((*line, replace(piece, text=text)), goes_on)
            line, goes_on = [], False
        if rest:
            line.append(replace(piece, text=rest))
    if line:
        yield Line(tuple(line), goes_on)


def shared_messages(example: RenderedExample, before: RenderedExample, opening: int) -> int:
    """How many tokens at the beginning are whole messages that another sample's prompt has too.

    Args:
        opening: the token with which a message begins.
    """
    size = min(example.loss_mask.index(True), before.loss_mask.index(True))
    pairs = enumerate(zip(example.input_ids[:size], before.input_ids[:size], strict=True))
    shared = next((place for place, (mine, other) in pairs if mine != other), size)
    return max((place for place in range(shared) if example.input_ids[place] == opening), default=0)


def visible(text: str) -> str:
    """Text that is safe on a terminal: what would move the cursor or turn the direction is named instead."""
    return "".join(_named(letter) if ord(letter) in _UNSEEN else letter for letter in text)


def _named(letter: str) -> str:
    code = ord(letter)
    return chr(0x2400 + code) if code < 0x20 else f"⟨U+{code:04X}⟩"


def _is_whole(content: bytes) -> bool:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        # Cut at the end: the next token may complete it. Broken in the middle: nothing will.
        return error.reason != "unexpected end of data"
    return True


@lru_cache(maxsize=1)
def _byte_alphabet() -> dict[str, bytes]:
    """The letters in which byte-level vocabularies spell bytes: the printable ones of Latin-1 stand for themselves."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): bytes([byte]) for byte in printable}
    return letters | {chr(256 + place): bytes([byte]) for place, byte in enumerate(others)}
