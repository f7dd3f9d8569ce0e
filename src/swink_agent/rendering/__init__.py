"""What was said and done, as safe HTML, Markdown and rows of a terminal: the pieces of which all that is shown is made.

`characters` makes visible what hides; `highlight` and `languages` colour code, `prose` and `inline` lay out Markdown,
`tame` keeps it from passing for ours; `turns` puts calls and results together, `blocks` draws them, `frame` is the page
around them; `escaping` makes text safe for a terminal, and `cells` says how much room it takes there. All of it goes
from plain values to strings: nothing is read, fetched or written. Importing this module loads none of them.
"""
