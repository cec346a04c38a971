# make app · make test · make check: each sets up all that it needs, in .venv, and only once.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/bash

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# compat: a plain path instead of an import hook, so that a script which lies beside the checkout,
# a folder of the same name as the package, imports the package and not the folder
PIP := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt \
  --config-settings editable_mode=compat
HOST ?= 127.0.0.1
PORT ?= 7860

.PHONY: help app test check clean

help:
	@echo "make app     open the page at http://$(HOST):$(PORT)"
	@echo "make test    lint, types and every test"
	@echo "make check   lint and types only"
	@echo "make clean   remove the virtual environment and what the tools wrote"
	@echo "These may be set, as in make app PORT=8000:"
	@echo "HOST=$(HOST)   address that the page listens on"
	@echo "PORT=$(PORT)        port that it listens on"
	@echo "PYTHON=$(PYTHON)   Python that the virtual environment is made of"

app: $(VENV)/.installed
	$(BIN)/music-gpt app --host $(HOST) --port $(PORT)

test: check $(VENV)/.browser $(VENV)/.fluidsynth
	OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest --cov --cov-report=term

# Gradio writes a .pyi beside each component, and mypy would read that in place of the source.
check: $(VENV)/.installed-dev
	@rm -f music_gpt/ui/*.pyi
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) build *.egg-info .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

# A changed requirement gives a new stamp; an unchanged one installs nothing.
$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo \
	  "$(PYTHON) is missing or older than 3.11, which music_gpt needs: install one, or name it: make PYTHON=python3.12 ..." >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/.made
	$(PIP) -e '.[fast]'
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(VENV)/.made
	$(PIP) -e '.[dev]'
	@touch $@ $(VENV)/.installed

# $(call debian,found,packages,name,tests): root on Debian gets the packages unless the program is found;
# elsewhere what is there is used, and without it these tests are skipped by name.
define debian
	@if ! $(1) >/dev/null && command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	  apt-get update && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $(2) \
	  || echo "There is no $(3) to be had, so $(4) will be skipped." >&2; \
	fi
	@touch $@
endef
FIND_FLUIDSYNTH := from ctypes.util import find_library as find; raise SystemExit(not find("fluidsynth"))

$(VENV)/.browser: | $(VENV)/.made
	$(call debian,command -v chromium,chromium fonts-dejavu-core,Chromium,the browser tests)

$(VENV)/.fluidsynth: | $(VENV)/.made
	$(call debian,$(BIN)/python -c '$(FIND_FLUIDSYNTH)',libfluidsynth3,FluidSynth,the tests that play a SoundFont)
