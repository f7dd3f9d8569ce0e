"""The public names of the adapters and their modules; `core/lazy.py` reads this list."""

from .anthropic import AnthropicStreamFn as AnthropicStreamFn
from .azure import AzureStreamFn as AzureStreamFn
from .bedrock import BedrockStreamFn as BedrockStreamFn
from .catalog import ModelCatalog as ModelCatalog
from .catalog import ModelInfo as ModelInfo
from .gemini import GeminiStreamFn as GeminiStreamFn
from .kit.transport import AiohttpTransport as AiohttpTransport
from .kit.transport import Limits as Limits
from .kit.transport import Transport as Transport
from .kit.transport import TransportError as TransportError
from .mistral import MistralStreamFn as MistralStreamFn
from .ollama import OllamaStreamFn as OllamaStreamFn
from .openai import OpenAiStreamFn as OpenAiStreamFn
from .openai_responses import OpenAiResponsesStreamFn as OpenAiResponsesStreamFn
from .proxy import ProxyStreamFn as ProxyStreamFn
from .xai import XAiStreamFn as XAiStreamFn
