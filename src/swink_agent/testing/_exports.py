"""The public names for tests, one line each, and where they live: the one list of them."""

from .check_conversation import check_conversation as check_conversation
from .check_events import check_events as check_events
from .check_replay import assert_replays as assert_replays
from .check_replay import assert_replays_sync as assert_replays_sync
from .check_stream_fn import check_stream_fn as check_stream_fn
from .clock import FakeClock as FakeClock
from .collect import collect as collect
from .collect import names as names
from .fakes import FakeFailure as FakeFailure
from .fakes import FakeProvider as FakeProvider
from .fakes import FakeReply as FakeReply
from .script import Request as Request
from .script import ScriptedStream as ScriptedStream
from .script import call as call
from .script import fail as fail
from .script import reply as reply
from .script import scripted as scripted
from .script import stall as stall
from .script import text as text
from .script import think as think
from .script import truncated as truncated
from .servers import LoopbackServer as LoopbackServer
