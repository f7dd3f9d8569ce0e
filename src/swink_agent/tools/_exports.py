"""The public names of the tools, one line each, and where they live: the one list, which `core/lazy.py` reads."""

from .edit_file import EditFileTool as EditFileTool
from .list_dir import ListDirTool as ListDirTool
from .preview import change_preview as change_preview
from .read_file import ReadFileTool as ReadFileTool
from .search import SearchTool as SearchTool
from .shell import BashTool as BashTool
from .standard import standard_tools as standard_tools
from .undo import UndoError as UndoError
from .undo import UndoStore as UndoStore
from .workspace import Workspace as Workspace
from .workspace import WorkspaceError as WorkspaceError
from .write_file import WriteFileTool as WriteFileTool
