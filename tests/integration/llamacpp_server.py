"""A llama.cpp server on a free loopback port: `python llamacpp_server.py WEIGHTS`.

Runs in a separate process. It writes its address as its only line of output once the model is loaded, and ends when
its standard input does, so that it does not outlive the tests, however those end.
"""

from __future__ import annotations

import os
import sys
from typing import Any

# The weights' own template knows no tools, and llama.cpp derives from the template how a call is written, and from
# that the grammar which forces one.
TEMPLATE = """\
{%- if tools %}<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}

{% endif %}# Tools

<tools>
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}</tools>

To call a tool, write a JSON object with its name and arguments:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call><|im_end|>
{% elif messages[0].role == 'system' %}<|im_start|>system
{{ messages[0].content }}<|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == 'user' or message.role == 'assistant' %}<|im_start|>{{ message.role }}
{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% elif message.role == 'tool' %}<|im_start|>tool
{{ message.content }}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def serve(weights: str) -> None:
    server = _started(weights)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()
    # At once: the server would wait for a reply in progress.
    os._exit(0)


def _started(weights: str) -> Any:
    # Threads without work would spin, on the cores that the tests run on. Read when the library is loaded.
    os.environ["OMP_WAIT_POLICY"] = "passive"
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = weights
    params.model_alias = {"smollm2"}
    params.chat_template = TEMPLATE
    params.use_jinja = True
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = 2048
    params.n_batch = params.n_ubatch = 256
    params.n_parallel = 1
    params.n_gpu_layers = 0
    params.n_threads_http = 4
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 2
    params.cpuparams.poll = params.cpuparams_batch.poll = 0
    params.cache_ram_mib = 0
    params.warmup = False
    params.ui = False
    params.offline = True
    return xllamacpp.Server(params)


if __name__ == "__main__":
    serve(sys.argv[1])
