"""The public names of the memory, one line each, and where they live: the one list, which `core/lazy.py` reads."""

from swink_agent.core.window import SlidingWindow as SlidingWindow

from .divergence import Divergence as Divergence
from .divergence import ReplayReport as ReplayReport
from .errors import SessionAmbiguous as SessionAmbiguous
from .errors import SessionDamaged as SessionDamaged
from .errors import SessionError as SessionError
from .errors import SessionInUse as SessionInUse
from .errors import SessionNotFound as SessionNotFound
from .export import export_html as export_html
from .export import export_json as export_json
from .export import export_markdown as export_markdown
from .info import SessionInfo as SessionInfo
from .records import LabelAdded as LabelAdded
from .records import NoteAdded as NoteAdded
from .records import SessionRecord as SessionRecord
from .records import SessionStarted as SessionStarted
from .records import Summary as Summary
from .records import TitleChanged as TitleChanged
from .records import UnknownMessage as UnknownMessage
from .records import UnknownRecord as UnknownRecord
from .replaying import replay as replay
from .search import SearchHit as SearchHit
from .search import SessionIndex as SessionIndex
from .session import LoadedSession as LoadedSession
from .session import Session as Session
from .store import AsyncSessionStore as AsyncSessionStore
from .store import JsonlSessionStore as JsonlSessionStore
from .summary import SummarizingCompactor as SummarizingCompactor
from .token_counters import tiktoken_counter as tiktoken_counter
