# SPDX-License-Identifier: Apache-2.0
"""Run folders made readable: on the terminal, as JSON, Markdown and one HTML page.

Reads the records of a run and nothing else: no log is searched, no engine
asked, no verdict decided here.
"""
