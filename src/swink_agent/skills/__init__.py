"""Skills: folders with a `SKILL.md` that tells a model how to do something. It is read only when it is needed.

`find_skills` reads the skills in a folder of skills, `SkillTool` gives them to a model, `skills_prompt` names them in a
system prompt. Reading needs the extra `skills`. Importing this module loads nothing of it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._exports import *
else:
    from swink_agent.core.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(__name__, "._exports")
