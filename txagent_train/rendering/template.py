"""The chat template that is saved with the model: the renderer's words, in Jinja.

It is written for the environment of transformers (and of the servers that use it): there ``tojson`` keeps the order
of keys and escapes nothing for HTML. Every block strips the white space around it, so that an environment that does
not trim blocks, such as a bare ``jinja2.Template``, differs in ``tojson`` alone (sorted keys, ``' < > &`` escaped).
"""

from __future__ import annotations

import json

from txagent_train.rendering.controls import Neutraliser
from txagent_train.rendering.messages import tool_message
from txagent_train.rendering.syntax import HERMES_TOOLS_AFTER, HERMES_TOOLS_BEFORE
from txagent_train.rendering.wire import FINISH_TOOL, FRAMES, TOOL_CALLS_MARKER, WireFormat

_MACROS = """\
{#- Breaks control strings in text that is not the template's own. -#}
{%- macro broken(text, pairs) -%}
  {%- set ns = namespace(text=text) -%}
  {%- for pair in pairs -%}
    {%- set ns.text = ns.text | replace(pair[0], pair[1]) -%}
  {%- endfor -%}
  {{- ns.text -}}
{%- endmacro -%}
{#- The text of a message: a string, null, or a list of parts. -#}
{%- macro text_of(content) -%}
  {%- if content is string -%}
    {{- content -}}
  {%- elif content -%}
    {%- for part in content -%}{{- part['text'] -}}{%- endfor -%}
  {%- endif -%}
{%- endmacro -%}
{%- macro tool_line(tool) -%}
  {%- set f = tool['function'] if tool['function'] is defined else tool -%}
  {%- set parameters = f['parameters'] if f['parameters'] is mapping else {'type': 'object', 'properties': {}} -%}
  {{- '{"name": ' ~ (f['name'] | tojson) ~ ', "description": ' ~ ((f['description'] or '') | tojson)
      ~ ', "parameters": ' ~ (parameters | tojson) ~ '}' -}}
{%- endmacro -%}
"""

_TXAGENT_MACROS = """\
{%- macro call_line(call) -%}
  {%- set f = call['function'] if call['function'] is defined else call -%}
  {%- set id = call['id'] if call['id'] else call['call_id'] -%}
  {{- '{"name": ' ~ (f['name'] | tojson(ensure_ascii=true)) ~ ', "arguments": '
      ~ (f['arguments'] if f['arguments'] is string else (f['arguments'] | tojson(ensure_ascii=true)))
      ~ ((', "call_id": ' ~ (id | tojson)) if id else '') ~ '}' -}}
{%- endmacro -%}
{%- macro calls_text(content, calls) -%}
  {{- content -}}
  {%- if calls is string and calls not in ['', 'null', '[]'] -%}
    {{- __TOOL_CALLS__ ~ broken(calls, escapes) -}}
  {%- elif calls and calls is not string -%}
    {{- __TOOL_CALLS__ ~ '[' -}}
    {%- for call in calls -%}
      {{- ', ' if not loop.first else '' -}}{{- broken(call_line(call), escapes) -}}
    {%- endfor -%}
    {{- ']' -}}
  {%- endif -%}
{%- endmacro -%}
"""

_HERMES_MACROS = """\
{%- macro call_line(call) -%}
  {%- set f = call['function'] if call['function'] is defined else call -%}
  {{- '{"name": ' ~ (f['name'] | tojson) ~ ', "arguments": '
      ~ (f['arguments'] if f['arguments'] is string else (f['arguments'] | tojson)) ~ '}' -}}
{%- endmacro -%}
{%- macro calls_text(content, calls) -%}
  {{- content -}}
  {%- for call in calls or [] -%}
    {{- ('\\n' if content or not loop.first else '') ~ '<tool_call>\\n' ~ broken(call_line(call), escapes)
        ~ '\\n</tool_call>' -}}
  {%- endfor -%}
{%- endmacro -%}
"""

_SYSTEM = """\
{%- set system = text_of(messages[0]['content']) | trim if messages and messages[0]['role'] == 'system' else '' -%}
{%- set system = broken(system, system_breaks) -%}
{%- set listing = namespace(rag=[], others=[], text='') -%}
{%- for tool in tools or [] -%}
  {%- set name = (tool['function'] if tool['function'] is defined else tool)['name'] -%}
  {%- if name == 'Tool_RAG' -%}
    {%- set listing.rag = listing.rag + [tool] -%}
  {%- elif name != 'Finish' -%}
    {%- set listing.others = listing.others + [tool] -%}
  {%- endif -%}
{%- endfor -%}
{%- set shown = __ARRANGED__ if tools else [] -%}
{%- if shown -%}
  {%- for tool in shown -%}
    {%- set line = __TOOL_LINE__ -%}
    {%- set listing.text = listing.text ~ ('\\n' if not loop.first else '') ~ broken(line, escapes) -%}
  {%- endfor -%}
  {%- set system = (system ~ __BEFORE_TOOLS__ if system else '') ~ __TOOLS_OPEN__ ~ listing.text ~ __TOOLS_CLOSE__ -%}
{%- endif -%}
{%- if system -%}
  {{- open('system') ~ system ~ close -}}
{%- endif -%}
"""

_TXAGENT_TOOL = """\
  {%- elif message['role'] in ['tool', 'ipython'] -%}
    {%- set text = text_of(message['content']) -%}
    {%- if message['tool_call_id'] -%}
      {%- set text = '{"content": ' ~ (text | tojson(ensure_ascii=true)) ~ ', "call_id": '
                     ~ (message['tool_call_id'] | tojson) ~ '}' -%}
    {%- endif -%}
    {{- open(__TOOL_ROLE__) ~ broken(text, breaks) ~ close -}}
"""

_HERMES_TOOL = """\
  {%- elif message['role'] in ['tool', 'ipython'] -%}
    {%- if loop.first or messages[loop.index0 - 1]['role'] != message['role'] -%}
      {{- open(__TOOL_ROLE__) -}}
    {%- else -%}
      {{- '\\n' -}}
    {%- endif -%}
    {{- '<tool_response>\\n' ~ broken(text_of(message['content']), breaks) ~ '\\n</tool_response>' -}}
    {%- if loop.last or messages[loop.index0 + 1]['role'] != message['role'] -%}
      {{- close -}}
    {%- endif -%}
"""

_MESSAGES = """\
{%- for message in messages -%}
  {%- if message['role'] == 'system' -%}
    {%- if not loop.first -%}{{- raise_exception('a system message must come first') -}}{%- endif -%}
  {%- elif message['role'] == 'user' -%}
    {{- open('user') ~ broken(text_of(message['content']) | trim, breaks) ~ close -}}
  {%- elif message['role'] == 'assistant' -%}
    {%- set content = broken(text_of(message['content']) | trim, breaks) -%}
    {{- open('assistant') ~ calls_text(content, message['tool_calls']) ~ close -}}
__TOOL_BRANCH__
  {%- else -%}
    {{- raise_exception('unknown role: ' ~ message['role']) -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- open('assistant') -}}
{%- endif -%}
"""


def _jinja(text: str) -> str:
    """A Jinja string literal: Jinja reads the escapes of JSON."""
    return json.dumps(text, ensure_ascii=False)


def _pairs(pairs: tuple[tuple[str, str], ...]) -> str:
    return "[" + ", ".join(f"[{_jinja(old)}, {_jinja(new)}]" for old, new in pairs) + "]"


def chat_template(wire: WireFormat, foreign: Neutraliser, system: Neutraliser) -> str:
    """The template of a wire format for a tokenizer whose control strings the neutralisers know."""
    frame = FRAMES[wire.frame]
    txagent = wire.syntax == "txagent"
    # WireFormat.arrange_tools, in Jinja: a client gives its tools as they are, without Finish.
    finish = json.dumps([tool_message(FINISH_TOOL)] if wire.finish == "call" else [])
    order = "listing.rag + listing.others"
    words = {
        "__TOOL_CALLS__": _jinja(TOOL_CALLS_MARKER),
        "__TOOL_ROLE__": _jinja(wire.tool_role),
        "__TOOL_LINE__": "tool_line(tool)"
        if txagent
        else '\'{"type": "function", "function": \' ~ tool_line(tool) ~ \'}\'',
        "__ARRANGED__": f"{finish} + {order}" if txagent else f"{order} + {finish}",
        "__BEFORE_TOOLS__": _jinja("\n" if txagent else "\n\n"),
        "__TOOLS_OPEN__": _jinja("" if txagent else HERMES_TOOLS_BEFORE),
        "__TOOLS_CLOSE__": _jinja("" if txagent else HERMES_TOOLS_AFTER),
        "__TOOL_BRANCH__": (_TXAGENT_TOOL if txagent else _HERMES_TOOL).rstrip("\n"),
    }
    opening = f"{_jinja(frame.open)} ~ role ~ {_jinja(frame.role_close + frame.after_role)}"
    body = "".join(
        [
            f"{{#- txagent-train: frame {wire.frame}, syntax {wire.syntax}, finish {wire.finish}, "
            f"tool_delivery {wire.tool_delivery} -#}}\n",
            f"{{%- set breaks = {_pairs(foreign.plain)} -%}}\n",
            f"{{%- set escapes = {_pairs(foreign.json)} -%}}\n",
            f"{{%- set system_breaks = {_pairs(system.plain)} -%}}\n",
            f"{{%- macro open(role) -%}}{{{{- {opening} -}}}}{{%- endmacro -%}}\n",
            f"{{%- set close = {_jinja(frame.close + frame.after_close)} -%}}\n",
            _MACROS,
            _TXAGENT_MACROS if txagent else _HERMES_MACROS,
            f"{{{{- {_jinja(frame.begin)} -}}}}\n" if frame.begin else "",
            _SYSTEM,
            _MESSAGES,
        ]
    )
    for placeholder in ("__TOOL_BRANCH__", *words):  # the branch holds other placeholders: first
        body = body.replace(placeholder, words[placeholder])
    return body.rstrip("\n")
