"""The public names of the tools, one line each, with their modules. `core/lazy.py` reads this list."""

from swink_agent.rendering.checklist import TodoItem as TodoItem
from swink_agent.rendering.checklist import todo_items as todo_items

from .checkpoints.checkpoint import Checkpoint as Checkpoint
from .checkpoints.checkpoint import CheckpointError as CheckpointError
from .checkpoints.checkpoint import PathRewind as PathRewind
from .checkpoints.store import CheckpointStore as CheckpointStore
from .commands.task_tools import BashOutputTool as BashOutputTool
from .commands.task_tools import BashStopTool as BashStopTool
from .files.edit_file import EditFileTool as EditFileTool
from .files.list_dir import ListDirTool as ListDirTool
from .files.preview import change_preview as change_preview
from .files.read_file import ReadFileTool as ReadFileTool
from .files.write_file import WriteFileTool as WriteFileTool
from .search.tool import SearchTool as SearchTool
from .shell import BashTool as BashTool
from .standard import standard_tools as standard_tools
from .todo import TodoTool as TodoTool
from .web.web_fetch import WebFetchTool as WebFetchTool
from .workspace.workspace import Workspace as Workspace
from .workspace.workspace import WorkspaceError as WorkspaceError
