"""The public names of the exporters and their modules, one line each. `core/lazy.py` reads this list."""

from .document import export_json as export_json
from .markdown import export_markdown as export_markdown
from .page import export_html as export_html
from .trajectory import TrajectoryError as TrajectoryError
from .trajectory import export_atif as export_atif
from .trajectory import read_atif as read_atif
