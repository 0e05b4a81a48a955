# make run | lab | test-fast | test | test-all | lint | notebooks | book | models | bench        (help: make)
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# `make run` continues a run that was stopped, and replaces one that had ended; RUN_ARGS=--overwrite always starts afresh.
UNFINISHED := $(and $(wildcard outputs/run/run.json),$(if $(wildcard outputs/run/report.json),,yes))
RUN_ARGS ?= $(if $(UNFINISHED),--resume,--overwrite)
# Tests run in parallel in this many processes, each with one thread (tests/conftest.py distributes them).
JOBS ?= 2

# Jupyter, its kernels and the learner's progress need a writable home folder: if there is none, use .home/ here.
ifneq ($(shell test -d "$$HOME" && test -w "$$HOME" && echo yes),yes)
export HOME := $(CURDIR)/.home
$(shell mkdir -p "$(CURDIR)/.home")
endif

.PHONY: help setup run test-fast test test-all lab notebooks book models bench lint gguf test-gguf
help:
	@echo "make run        the main run: measure, train with GRPO, measure again, merge, report (outputs/run)"
	@echo "make test-fast  the fast tests: no training, no notebooks"
	@echo "make test       the fast tests, one main run, short trainings, changed notebooks in short (CI: FULL=1, in full)"
	@echo "make test-all   everything that the nightly workflow runs"
	@echo "make lint       style, types, import rules, how dense the code is: seconds"
	@echo "make lab        JupyterLab on the notebooks"
	@echo "make notebooks  rebuild the notebooks whose inputs changed and execute them (NB_ARGS=--all)"
	@echo "make book       the executed notebooks as a static site with search (build/book/index.html)"
	@echo "make models     rebuild the data and the tiny models from scratch"
	@echo "make bench      the benchmarks behind the README's numbers"
	@echo "make bench-gpu  every number of docs/measurements.md that needs a GPU; it stops after 8 minutes"
	@echo "make test-gguf  compile llama.cpp (minutes, once) and compare its answers with Transformers'"

# Installs once, and again only if a requirements file changes, or if an install was interrupted.
STAMP := $(VENV)/.installed
setup: $(STAMP)
$(STAMP): requirements.txt requirements/unsloth.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}: make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -q -r requirements.txt
	$(BIN)/python -m pip install --disable-pip-version-check -q --no-deps -r requirements/unsloth.txt
	$(BIN)/python -m pip install --disable-pip-version-check -q --no-deps -e .
	@touch $@

run: $(STAMP)
	$(BIN)/python -m grpo_workbook run $(RUN_ARGS)

# What one test compares with; where it cannot be had, that test says so and is skipped.
COMPARE := $(VENV)/.compare
$(COMPARE): $(STAMP) requirements/compare.txt
	@$(BIN)/python -m pip install --disable-pip-version-check -q --no-deps -r requirements/compare.txt && touch $@ || true

BOOK := $(VENV)/.book
$(BOOK): $(STAMP) requirements/book.txt
	@$(BIN)/python -m pip install --disable-pip-version-check -q -r requirements/book.txt -c requirements.txt && touch $@

book: $(BOOK)
	$(BIN)/python docs/book/build.py

# The tests start nbmake themselves; its import takes a second of each process.
PYTEST := $(BIN)/python -m pytest -p no:nbmake -n $(JOBS) --dist loadgroup --no-loadscope-reorder

test-fast: $(STAMP)
	$(PYTEST) -m "not trains and not slow and not notebook and not extra"

# For tests/test_gpu_path.py: 198 MB to download, 691 MB on the disk; elsewhere those tests are skipped.
TRITON := $(VENV)/triton
$(TRITON): requirements/triton.txt | $(STAMP)
	@$(BIN)/python -m pip install --disable-pip-version-check -q --no-deps --target $@.new -r requirements/triton.txt && rm -rf $@ && mv $@.new $@ || true

# For tests/test_environments.py: the two libraries of docs/environments.md, each in a folder of its own because they ask for different
# versions of mcp; where they cannot be had, these tests are skipped.
ENVIRONMENTS := $(VENV)/environments
$(ENVIRONMENTS): requirements/environments.txt | $(STAMP)
	@grep == $< | while read one; do \
	  $(BIN)/python -m pip install --disable-pip-version-check -q --target $@.new/$${one%%==*} $$one || exit 1; \
	done && rm -rf $@ && mv $@.new $@ || true

test: $(STAMP) $(if $(FULL),$(TRITON))
	$(PYTEST) -m "not extra"

test-all: $(STAMP) $(COMPARE) $(BOOK) $(TRITON) $(ENVIRONMENTS) lint
	TEST_ALL=1 $(PYTEST)

lab: $(STAMP)
	$(BIN)/jupyter lab --notebook-dir=notebooks $(LAB_ARGS)

notebooks: $(STAMP)
	$(BIN)/python notebooks/build.py $(NB_ARGS)

models: $(STAMP)
	$(BIN)/python data/build_word_problems.py
	$(BIN)/python data/build_code_tasks.py
	$(BIN)/python data/build_messages.py
	$(BIN)/python data/build_orders.py
	$(BIN)/python data/build_tiny_models.py
	$(BIN)/python data/build_tiny_form.py
	$(BIN)/python data/build_tiny_coder.py
	$(BIN)/python data/build_tiny_tools.py
	$(BIN)/python data/build_tiny_steps.py
	$(BIN)/python data/build_tiny_vision.py
	$(BIN)/python data/build_tiny_shop.py
	$(BIN)/python data/build_tiny_clerk.py messages
	$(BIN)/python data/build_tiny_clerk.py orders

bench: $(STAMP)
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/rewards.py
	$(BIN)/python benchmarks/data.py
	$(BIN)/python benchmarks/diagnosis.py --report
	$(BIN)/python benchmarks/code_rewards.py --heavy

.PHONY: bench-gpu test-gpu test-colab
bench-gpu: $(STAMP)
	$(BIN)/python benchmarks/gpu.py $(GPU_ARGS)

# On a CUDA GPU; elsewhere each test is skipped and says why.
test-gpu: $(STAMP)
	$(BIN)/python -m pytest tests/gpu

# Downloads packages: not part of make test.
test-colab: $(STAMP)
	$(BIN)/python -m pytest -rP tests/network/test_colab_install.py

# uv.lock with the pinned versions. fastapi is chosen by uv: it has one version more for vLLM.
.PHONY: lock
lock:
	uv lock $$(sed -n '/^fastapi/d; s/^\([A-Za-z0-9_.-]*==[^ ]*\).*/-P \1/p' requirements.txt requirements/unsloth.txt)

# llama.cpp with its converter, from the source of llama-cpp-python on the package index: compiled once, in minutes.
LLAMA := llama-cpp-python==0.3.36
GGUF := .venv-gguf
gguf: $(GGUF)/.installed
$(GGUF)/.installed: $(STAMP)
	$(PYTHON) -m venv --clear $(GGUF)
	$(GGUF)/bin/python -m pip download --disable-pip-version-check -q --no-deps --no-binary llama-cpp-python -d $(GGUF)/src $(LLAMA)
	cd $(GGUF)/src && tar -xzf llama_cpp_python-*.tar.gz
	CMAKE_ARGS="-DLLAVA_BUILD=OFF $(CMAKE_ARGS)" $(GGUF)/bin/python -m pip install --disable-pip-version-check -q --no-binary llama-cpp-python $(LLAMA)
	@touch $@

test-gguf: gguf
	$(BIN)/python -m pytest tests/test_gguf.py

LINT := $(VENV)/.lint
$(LINT): $(STAMP) requirements/lint.txt
	@$(BIN)/python -m pip install --disable-pip-version-check -q -r requirements/lint.txt && touch $@

lint: $(LINT)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/python tests/density.py
