# SPDX-License-Identifier: Apache-2.0
#
# kvseal's verbs. Each recipe is one command; what it does stands in scripts/,
# playbooks/ and src/.
#
# A profile of defconfigs/ chooses a workflow: lmcache-snapkv, the comparison of
# baseline and SnapKV, kv-reuse, the verifier, or lmcache-snapkv-matrix, the
# negative matrix. Each has one for an NVIDIA GPU, which only builds, and one
# that ends in -cpu, which also runs.
#
# Stages, in the order in which plain `make` goes through them:
#   doctor → fetch → build → patch → run (if switched on) → report
#
# One way for data: a profile → .config → extra_vars.yaml → run-spec.json →
# Ansible → results. Each file is made again when what it comes from is newer,
# kvseal's own source included. Everything that is built goes into the cache
# ($KVSEAL_CACHE, else kvseal in the user's cache folder) or below build/.
# V=1 shows the commands.

MAKEFLAGS += --no-builtin-rules
# Stages use one machine; side by side they would only fail in new ways.
.NOTPARALLEL:
.DELETE_ON_ERROR:
.SUFFIXES:

Q := $(if $(V),,@)
IN := scripts/bootstrap
KCONFIG := $(Q)$(IN) python scripts/kconfig.py

# The workflow that run-spec.json is of; asked by recipes, which run when it is made.
WORKFLOW = $(shell sed -n 's/^  "workflow": "\(.*\)",$$/\1/p' run-spec.json 2>/dev/null)

# $(call play,WORKFLOW) its stages, for a run spec of that workflow alone;
# $(call whole,WORKFLOW) all of them, nothing when all is done.
play = $(if $(filter-out $1,$(WORKFLOW)),$(error .config is for $(WORKFLOW); choose a \
	profile: make defconfig-$1 or make defconfig-$1-cpu))$(IN) ansible-playbook \
	playbooks/$1.yml -e '{"run_spec":"$(CURDIR)/run-spec.json"}'
whole = $(IN) kvseal spec --up-to-date run-spec.json || $(call play,$1)

.PHONY: all
all: run-spec.json ## Doctor, fetch, build, patch, run if switched on, report
	$(Q)$(call whole,$(WORKFLOW))

include workflows/lmcache_snapkv/Makefile workflows/kv_reuse/Makefile
include workflows/lmcache_snapkv_matrix/Makefile

# A file that is taken away changes its folder, so folders count too.
SOURCES := $(shell find src/kvseal requirements -not -name '*.pyc' -not -name __pycache__)

##@ Configuration
.PHONY: defconfig menuconfig olddefconfig savedefconfig
defconfig-%: FORCE ## Start from a profile of defconfigs/
	$(KCONFIG) defconfig $*

defconfig: ## Start from the file FROM=FILE; one of KNLP or kdevops will do
	$(KCONFIG) defconfig-file '$(or $(FROM),$(error name a file with FROM=FILE))'

menuconfig: ## Change .config on the terminal
	$(KCONFIG) menuconfig

olddefconfig: .config ## Check .config and fill in new symbols with their defaults
	$(KCONFIG) olddefconfig

savedefconfig: .config ## Write what differs from the defaults to ./defconfig
	$(KCONFIG) savedefconfig

.config:
	$(error no configuration yet; choose a profile: $(foreach \
		profile,$(notdir $(wildcard defconfigs/*)),make defconfig-$(profile)))

extra_vars.yaml: .config $(wildcard Kconfig workflows/Kconfig.* workflows/*/Kconfig)
	$(KCONFIG) extra-vars

run-spec.json: extra_vars.yaml $(SOURCES)
	$(Q)$(IN) kvseal spec --vars extra_vars.yaml --out run-spec.json

##@ Development
.PHONY: check check-all lock
check: ## Lint, unit tests, and tests on real engines
	$(Q)scripts/check

check-all: ## The same, and the matrix on every second tier (hours)
	$(Q)scripts/check all

lock: ## Resolve requirements/ again (see requirements/README.md)
	$(Q)$(IN) scripts/lock

##@ Other
.PHONY: help distclean FORCE
distclean: ## Remove configuration and build/; results and the cache stay
	$(Q)rm -rf .config .config.old extra_vars.yaml run-spec.json build

help: ## This list
	$(Q)scripts/help $(MAKEFILE_LIST)

FORCE:
