"""The public names of the memory, one line each, and where they live: the one list, which `core/lazy.py` reads."""

from swink_agent.core.context.window import SlidingWindow as SlidingWindow

from .compaction.summary import SummarizingCompactor as SummarizingCompactor
from .compaction.token_counters import tiktoken_counter as tiktoken_counter
from .errors import SessionAmbiguous as SessionAmbiguous
from .errors import SessionDamaged as SessionDamaged
from .errors import SessionError as SessionError
from .errors import SessionExists as SessionExists
from .errors import SessionInUse as SessionInUse
from .errors import SessionNotFound as SessionNotFound
from .export import export_html as export_html
from .export import export_json as export_json
from .export import export_markdown as export_markdown
from .log.records import LabelAdded as LabelAdded
from .log.records import NoteAdded as NoteAdded
from .log.records import SessionRecord as SessionRecord
from .log.records import SessionStarted as SessionStarted
from .log.records import Summary as Summary
from .log.records import TitleChanged as TitleChanged
from .log.records import UnknownMessage as UnknownMessage
from .log.records import UnknownRecord as UnknownRecord
from .replaying.divergence import Divergence as Divergence
from .replaying.divergence import ReplayReport as ReplayReport
from .replaying.playing import replay as replay
from .search.index import SearchHit as SearchHit
from .search.index import SessionIndex as SessionIndex
from .sessions.info import SessionInfo as SessionInfo
from .sessions.session import LoadedSession as LoadedSession
from .sessions.session import Session as Session
from .sessions.store import AsyncSessionStore as AsyncSessionStore
from .sessions.store import JsonlSessionStore as JsonlSessionStore
from .sessions.store import SessionStore as SessionStore
from .sessions.store import SqlSessionStore as SqlSessionStore
