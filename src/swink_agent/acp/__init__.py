"""The standard agent for editors, over the Agent Client Protocol on stdin and stdout.

`editor_agent` implements the protocol's agent with the reference package, `updates` turns our events into its
notifications. It needs the extra `acp`; nothing of it is loaded before `swink acp` runs.
"""
