# SPDX-License-Identifier: Apache-2.0
#
# kvseal's verbs. Each recipe is one command; what it does stands in scripts/,
# playbooks/ and src/.
#
# Profiles (defconfigs/):
#   lmcache-snapkv       one NVIDIA GPU, Qwen3-1.7B; builds only
#   lmcache-snapkv-cpu   no GPU, SmolLM2-135M from a package; builds and runs
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

.PHONY: all
all: lmcache-snapkv ## Doctor, fetch, build, patch, run if switched on, report

include workflows/lmcache_snapkv/Makefile

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

extra_vars.yaml: .config Kconfig workflows/lmcache_snapkv/Kconfig
	$(KCONFIG) extra-vars

run-spec.json: extra_vars.yaml $(SOURCES)
	$(Q)$(IN) kvseal spec --vars extra_vars.yaml --out run-spec.json

##@ Development
.PHONY: check lock
check: ## Lint, unit tests, and tests on real engines
	$(Q)scripts/check

lock: ## Resolve requirements/ again (see requirements/README.md)
	$(Q)$(IN) scripts/lock

##@ Other
.PHONY: help distclean FORCE
distclean: ## Remove configuration and build/; results and the cache stay
	$(Q)rm -rf .config .config.old extra_vars.yaml run-spec.json build

help: ## This list
	$(Q)scripts/help $(MAKEFILE_LIST)

FORCE:
