# SPDX-License-Identifier: Apache-2.0
"""This machine: what it is, and whether it can do what a run spec asks.

`facts` looks (and says where it looked), `checks` judges facts against a spec
and never looks. Called by the doctor and by drivers, which put the facts into
environment.json. Nothing here changes the machine; standard library only.
"""
