# SPDX-License-Identifier: Apache-2.0
"""From configuration to run spec: the only translation of options there is.

options     which Kconfig symbol becomes which field
translate   extra_vars.yaml → RunSpec
rules       what one field demands of another
pins        which versions go together, and the environment they make
runspec     the run spec itself, read by roles and node verbs
archive     the zip application that carries kvseal to a node
installer   the user's pip settings, told to uv
legacy      symbols of a KNLP or kdevops configuration

Nothing here starts an engine or looks at the machine it runs on.
"""
