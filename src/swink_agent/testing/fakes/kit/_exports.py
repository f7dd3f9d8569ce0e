"""The public names of the kit and their modules; `core/lazy.py` reads this list."""

from .api import FakeApi as FakeApi
from .api import needs_bearer as needs_bearer
from .chat import ChatChunks as ChatChunks
from .chat import ChatRules as ChatRules
from .checks import TOOL_NAME as TOOL_NAME
from .checks import Shape as Shape
from .checks import Turn as Turn
from .checks import check_json_schema as check_json_schema
from .checks import check_lengths as check_lengths
from .checks import check_names as check_names
from .checks import check_pairs as check_pairs
from .checks import items as items
from .checks import mapping as mapping
from .checks import objects as objects
from .checks import string as string
from .checks import subschemas as subschemas
from .replies import Block as Block
from .replies import aws_event as aws_event
from .replies import blocks as blocks
from .replies import is_signed as is_signed
from .replies import json_bytes as json_bytes
from .replies import json_line as json_line
from .replies import new_id as new_id
from .replies import pieces as pieces
from .replies import sign as sign
from .replies import sse as sse
