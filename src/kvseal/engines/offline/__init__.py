# SPDX-License-Identifier: Apache-2.0
"""vLLM as a library in a process of its own, asked one prompt at a time.

`client.started_offline` starts the process, `host` is what runs in it and the
only module here that imports vLLM. They speak JSON over a local socket
(`protocol`). Called by the verifier, which must see the engine's effective
configuration and connector objects, not only its answers.
"""
