"""The standard agent for editors, over the Agent Client Protocol on stdin and stdout.

`editor_agent` implements the protocol's methods with the reference package. `session` is a front end of the
conversation behind all screens, and `updates` has its notifications. It needs the extra `acp`; nothing of it is loaded
before `swink acp` runs.
"""
