"""The standard agent for editors, over the Agent Client Protocol on stdin and stdout.

`editor_agent` implements the protocol's agent on the reference package, `updates` makes its notifications of our
events. It needs the extra `acp`; nothing of it is loaded before `swink acp` runs.
"""
