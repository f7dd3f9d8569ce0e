"""Memory: sessions that survive a crash, and compaction of conversations that exceed the model's context window.

`JsonlSessionStore` keeps one file for each session, `SqlSessionStore` all sessions in one database; a `Session` is
attached to an agent and records what it does, a `LoadedSession` is a session to read; `export_markdown`, `export_html`
and `export_json` make a document of it, and `replay` runs it again, offline, and reports the first difference.
`SessionIndex` searches the messages of all sessions.
`SlidingWindow` (from the core) leaves out the oldest messages, `SummarizingCompactor` has a model summarize them;
`tiktoken_counter` counts tokens as OpenAI's models do. Importing this module loads none of them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._exports import *
else:
    from swink_agent.core.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(__name__, "._exports")
