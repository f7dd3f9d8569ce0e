"""The types that `hints` provides, and their modules."""

from pathlib import Path as Path

from ..agent.delegate import MakeRunFn as MakeRunFn
from ..config import SystemPrompt as SystemPrompt
from ..journal import Journal as Journal
from ..journal import Past as Past
from ..media import DocumentInput as DocumentInput
from ..media import ImageInput as ImageInput
from ..observer import RunObserver as RunObserver
from ..pending import Answer as Answer
from ..policy import Policy as Policy
from ..run.announcing import Announcer as Announcer
from ..run.state import Run as Run
from ..run.supervisor import Supervisor as Supervisor
from ..run.threads import WorkerThreads as WorkerThreads
from ..run.views import TextStream as TextStream
from ..run.views import ValueStream as ValueStream
from ..run.views import ViewFn as ViewFn
from ..schemas.schema import FunctionSchema as FunctionSchema
from ..secrets.redaction import Redactor as Redactor
from ..structured import StructuredOutput as StructuredOutput
from ..structured import StructuredResult as StructuredResult
from ..structured import ValidateFn as ValidateFn
from ..tool import AgentTool as AgentTool
from ..turn import Tools as Tools
from .model_info import ModelInfo as ModelInfo
