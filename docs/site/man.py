#!/usr/bin/env python3
"""A manual page, as mandoc writes it in Markdown, as a page of the site: one title, links to other pages, options in one piece."""
import re
import sys

text = sys.stdin.read()
text = '\n'.join(line for line in text.splitlines()[1:-1])  # without the header and the footer of a printed page
text = re.sub(r'^# ', '## ', text, flags=re.M)


def link(found):
    return found[0] if found[1] == sys.argv[1] else f'[{found[1]}(1)]({found[1]}.md)'


text = re.sub(r'(?:\*\*|)\b(plimsoll(?:-[a-z]+)?)(?:\*\*|)\(1\)', link, text)
text = re.sub(r'\*\*--[a-z-]+\*\*', r'<span class="option">\g<0></span>', text)
print(f'# {sys.argv[1]}\n\n{text}')
