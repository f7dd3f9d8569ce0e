"""Turns conversations into safe HTML, Markdown and terminal rows.

`characters` makes invisible characters visible. `highlight` and `languages` colour code. `prose` and `inline` turn
Markdown into HTML, with the rules of `block_marks` and `inline_marks`; `tame` embeds foreign Markdown in our documents.
`turns` pairs tool calls with their results, `blocks` writes them as HTML, and `frame` writes the page around them.
`escaping` makes text safe for a terminal, and `cells` measures and wraps it. `texts` compares texts and knows the
characters that hide something. All functions turn plain values into
strings and do no I/O, except that `frame` reads our own style sheet. Importing this module loads none of them.
"""
