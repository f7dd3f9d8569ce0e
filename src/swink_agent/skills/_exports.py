"""The public names of skills, one line each, with their modules. `core/lazy.py` reads this list."""

from .skill import Skill as Skill
from .skill import find_skills as find_skills
from .skill import read_skill as read_skill
from .tool import SkillTool as SkillTool
from .tool import skills_prompt as skills_prompt
