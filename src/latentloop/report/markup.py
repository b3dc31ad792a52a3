"""Text with a little markup as HTML: everything is escaped first, so that no text can become anything else.

Paragraphs are apart by an empty line; lines that begin with ``- `` are a list; lines between two lines of ``````` are code.
Within a line: ```code```, ``**strong**``, ``*emphasis*`` and ``[text](address)``, where the address is a place in the page
(``#...``), a file beside it, or begins with https:// or http://.
"""

import re
from html import escape

FENCE = "```"
_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[([^\[\]\n]+)\]\(([^()\s]+)\)")
_ADDRESS = re.compile(r"(?:https?://|#|[\w.-]+(?:/|$|#))[^\s\"'<>]*", re.ASCII)


def block_html(text: str) -> str:
    """Return paragraphs, lists and code as HTML."""
    parts = []
    for number, piece in enumerate(re.split(rf"^{FENCE}.*\n?", text, flags=re.MULTILINE)):
        if number % 2:  # between two fences
            parts.append(f"<pre><code>{escape(piece.rstrip())}</code></pre>")
            continue
        parts += [_paragraph(paragraph) for paragraph in re.split(r"\n\s*\n", piece) if paragraph.strip()]
    return "\n".join(parts)


def _paragraph(text: str) -> str:
    """Return one paragraph, with its list if it has one: lines that begin no item go on with what is before them."""
    words: list[str] = []
    items: list[str] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith("- "):
            items.append(line[2:])
        elif items:
            items[-1] += f" {line}"
        else:
            words.append(line)
    html = f"<p>{inline_html(' '.join(words))}</p>" if words else ""
    if items:
        html += f"<ul>{''.join(f'<li>{inline_html(item)}</li>' for item in items)}</ul>"
    return html


def inline_html(text: str) -> str:
    """Return one line as HTML: code, links, strong and emphasis."""
    parts = _CODE.split(text)  # text, code, text, ...
    return "".join(f"<code>{escape(part)}</code>" if number % 2 else _links(part) for number, part in enumerate(parts))


def _links(text: str) -> str:
    html = ""
    end = 0
    for found in _LINK.finditer(text):
        label, address = found.groups()
        html += _stressed(text[end : found.start()])
        if _ADDRESS.fullmatch(address):  # never javascript: or data:
            html += f'<a href="{escape(address)}" rel="noopener noreferrer">{_stressed(label)}</a>'
        else:
            html += _stressed(found.group())
        end = found.end()
    return html + _stressed(text[end:])


def _stressed(text: str) -> str:
    html = re.sub(r"\*\*(\S(?:[^*]*\S)?)\*\*", r"<strong>\1</strong>", escape(text))
    return re.sub(r"(?<![\w*])\*(\S(?:[^*]*\S)?)\*(?![\w*])", r"<em>\1</em>", html)
