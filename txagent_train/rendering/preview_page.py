"""Samples as one HTML page that needs nothing else: no script, no network, no other file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from txagent_train.core.records import RenderedExample
from txagent_train.rendering.preview import Line, Piece, Preview, lines, visible
from txagent_train.tracking.markup import count_of, fold, text

_STYLE = """\
:root { color-scheme: light dark; --ink: #1c2127; --soft: #6a7480; --rule: #dfe3e8; --on: #e3f3e6; --mark: #2c7a4b; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e3e7ec; --soft: #98a3b0; --rule: #2d353f; --on: #1d3325; --mark: #74c594; }
}
body { margin: 0 auto; padding: 2rem 1.5rem; max-width: 70rem; color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; } h2 { margin: 2rem 0 .3rem; font-size: 1.1rem; }
p { margin: .2rem 0; } summary { cursor: pointer; color: var(--soft); }
.lines { padding: .5rem 0; border: 1px solid var(--rule); border-radius: 4px; color: var(--soft);
  font: 12.5px/1.55 ui-monospace, Menlo, Consolas, monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
.lines div { padding: 0 .8rem 0 2.2rem; min-height: 1.55em; position: relative; border-left: 4px solid transparent; }
.lines div::before { position: absolute; left: .7rem; color: var(--mark); content: attr(data-mark); }
.lines .on { color: var(--ink); background: var(--on); border-color: var(--mark); }
.on span { text-decoration: underline; text-decoration-color: var(--mark); text-underline-offset: 3px; }
.control { font-weight: 600; border: 1px solid var(--rule); border-radius: 3px; }
.token { border-left: 1px solid var(--soft); }
"""


@dataclass(frozen=True, slots=True)
class StepPreview:
    """What becomes of one step. ``verdict`` says it in a few words, ``notes`` in full; ``example`` is None where it is
    no sample."""

    number: int
    verdict: str
    notes: tuple[str, ...]
    tools: tuple[str, ...] = ()
    example: RenderedExample | None = None


def margin(line: Line) -> str:
    """The mark before a line: ``+`` where it is trained on, ``>`` where it begins inside a line of the text."""
    return ("+" if line.trained else " ") + (">" if line.goes_on else " ")


def preview_page(title: str, steps: Sequence[StepPreview], preview: Preview, *, tokens: bool = False) -> str:
    """The page. Everything that comes from data is escaped.

    Args:
        tokens: show where each token begins; its id is shown under the pointer.
    """
    body = "".join(_step(step, preview, tokens) for step in steps)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{_shown(title)}</title>\n<style>\n{_STYLE}</style></head>\n<body>\n<h1>{_shown(title)}</h1>\n"
        "<p>Lines marked + (coloured, underlined) are trained on, the rest is the prompt. "
        "Control tokens are framed.</p>\n"
        f"{body}</body></html>\n"
    )


def _step(step: StepPreview, preview: Preview, tokens: bool) -> str:
    notes = "".join(f"<p>{_shown(note)}</p>\n" for note in step.notes)
    heading = f"<h2>Step {step.number}: {_shown(step.verdict)}</h2>\n{notes}"
    if step.example is None:
        return heading
    tools = "".join(f"<p>{_shown(name)}</p>" for name in step.tools)
    listing = fold(count_of(len(step.tools), "tool"), tools) if step.tools else ""
    pieces = preview.tokens(step.example) if tokens else preview.runs(step.example)
    shown = "".join(_line(line, tokens) for line in lines(pieces))
    return f'{heading}{listing}<div class="lines">{shown}</div>\n'


def _line(line: Line, tokens: bool) -> str:
    inner = "".join(_piece(piece, tokens) for piece in line.pieces)
    kind = "on" if line.trained else "prompt"
    return f'<div class="{kind}" data-mark="{text(margin(line))}">{inner}</div>'


def _piece(piece: Piece, tokens: bool) -> str:
    kinds = [name for name, holds in (("control", piece.control), ("token", tokens)) if holds]
    names = f' class="{" ".join(kinds)}"' if kinds else ""
    pointer = f' title="{" ".join(map(str, piece.ids))}"' if tokens else ""
    return f"<span{names}{pointer}>{_shown(piece.text)}</span>"


def _shown(value: str) -> str:
    return text(visible(value))
