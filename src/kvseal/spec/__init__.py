# SPDX-License-Identifier: Apache-2.0
"""From configuration to run spec: the only translation of options there is.

options     which Kconfig symbol becomes which field, a table a workflow
variables   what extra_vars.yaml must hold
translate   extra_vars.yaml → run spec
own_sections   the sections of a run spec that one workflow alone has
rules       what one field demands of another
pins        which versions go together, and the environment they make
runspec     the run spec itself, read by roles and node verbs; sections has its parts
contracts   on what ground a verification stands
verify_request   what a verification was asked to do, from either way in
archive     the zip application that carries kvseal to a node
installer   the user's pip settings, told to uv
legacy      symbols of a KNLP or kdevops configuration

Nothing here starts an engine or looks at the machine it runs on.
"""
