# The front door. Everything here can also be done with cmake --preset and ctest --preset.
# `make JOBS=8` sets the parallelism, `make WERROR=1` makes compiler warnings errors.

JOBS ?= $(shell nproc)
WERROR ?=

RELEASE := build/release
release_options = -DTUTTI_WERROR=$(if $(WERROR),ON,OFF)
TUTTI := $(RELEASE)/tutti

# The folders whose tests also run under sanitizers (their test program is <folder>_test).
# Address and undefined: those that parse external bytes or compute addresses. Thread: those that start
# threads (the engine's are OpenMP's, which the sanitizer does not understand).
ASAN_FOLDERS := base object spec chat data checkpoint engine model parallel train report mlperf comm control endpoint
TSAN_FOLDERS := telemetry data checkpoint comm parallel

# Build trees of one checkout share compiled objects.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1

tests_of = $(addsuffix _test,$(1))
space := $(subst ,, )
one_of = ^($(subst $(space),|,$(strip $(1))))(_full)?$$

# $(call run_tests,<preset>,<name of the results>,<extra ctest arguments>): for tools/test_summary.
run_tests = rm -f build/$(1)/test-results/ctest-$(2).xml && ctest --preset $(1) -j $(JOBS) $(3) \
	$(CTEST_FLAGS) --output-junit $(CURDIR)/build/$(1)/test-results/ctest-$(2).xml
# Further arguments of ctest, such as `make test CTEST_FLAGS='-R engine'`; RETRY: not for sanitizers.
CTEST_FLAGS ?=
RETRY ?=

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help deps deps-build build debug demo test test-all test-changed tests-built test-quick \
	test-rest test-full test-full-beside-build sanitizers-built asan-built tsan-built test-asan test-tsan bench \
	story cuda bundle bundle-cpu gpu-kit deb wheel gpu-check format format-check layers words links tidy check \
	hooks install clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

deps: ## Install the Debian packages for building, testing and developing
	@tools/install_packages

deps-build:
	@tools/install_packages build

build: deps-build ## Build the program: build/release/tutti
	@cmake --preset release --log-level=WARNING $(release_options)
	@cmake --build --preset release -j $(JOBS) --target tutti

debug: deps-build ## Build without optimisation: build/debug/tutti
	@cmake --preset debug --log-level=WARNING
	@cmake --build --preset debug -j $(JOBS)

demo: build ## Train a small model on Tutti's own sources, in about two minutes
	@tools/demo

story: build ## Walk through everything on a real Slurm of four virtual nodes, as root: story/index.html
	@tools/install_packages test
	@tools/python_env
	@.venv/bin/python3 tests/story/story.py --out story

test: test-quick ## Run the quick tests: every folder, parity, ranks, a crash, a job, the page; 8 minutes
	@tools/test_summary

test-all: test-quick test-rest ## Run every test, sanitizers included; 40 minutes on two cores
	@tools/test_summary

test-changed: tests-built ## Run the tests that the changes since origin's branch can break
	@tools/test_changed $(SINCE)

tests-built: deps
	@cmake --preset release --log-level=WARNING $(release_options)
	@cmake --build --preset release -j $(JOBS)
	@tools/python_env

# Results of an earlier run are not counted again.
test-quick: tests-built
	@rm -rf build/*/test-results
	@$(call run_tests,release,quick,-L quick $(RETRY))

test-rest: test-full-beside-build
	@$(MAKE) --no-print-directory sanitizers-built > build/sanitizers.log 2>&1 || \
	  { tail -n 40 build/sanitizers.log; exit 1; }
	@$(MAKE) --no-print-directory test-asan test-tsan

# The long tests wait for clusters and watchdogs more than they compute: the sanitizers' programs are
# built meanwhile, with what they leave of the cores; the rest of them afterwards, with all cores.
test-full-beside-build:
	@mkdir -p build
	@setsid nice -n 19 $(MAKE) --no-print-directory sanitizers-built JOBS=1 > build/sanitizers.log 2>&1 & \
	builder=$$!; status=0; \
	trap 'kill -s TERM -- -$$builder 2> /dev/null' EXIT; trap 'exit 130' INT TERM; \
	$(MAKE) --no-print-directory test-full || status=$$?; \
	kill -s TERM -- -$$builder 2> /dev/null; wait $$builder; \
	exit $$status

test-full: tests-built
	@$(call run_tests,release,full,-LE quick $(RETRY))

sanitizers-built: asan-built tsan-built

asan-built:
	@cmake --preset asan --log-level=WARNING
	@cmake --build --preset asan -j $(JOBS) --target $(call tests_of,$(ASAN_FOLDERS)) cuda_on_host_test

tsan-built:
	@cmake --preset tsan --log-level=WARNING
	@cmake --build --preset tsan -j $(JOBS) --target $(call tests_of,$(TSAN_FOLDERS))

test-asan: asan-built
	@$(call run_tests,asan,asan,-R '$(call one_of,$(call tests_of,$(ASAN_FOLDERS)) cuda_on_host_test engine_test_cuda)')

test-tsan: tsan-built
	@$(call run_tests,tsan,tsan,-R '$(call one_of,$(call tests_of,$(TSAN_FOLDERS)))')

bench: build ## Measure this machine, and say what became slower since the last time
	@$(TUTTI) bench all $(BENCH)

# Which targets `make cuda` builds: the program, and the tests that also run on a GPU.
CUDA_TARGETS ?= tutti engine_test train_test comm_test parity_dump

cuda: deps-build ## Build with CUDA, without a GPU too: build/cuda; run the tests that need one where one is
	@tools/cuda_headers
	@cmake --preset cuda --log-level=WARNING -DTUTTI_WERROR=$(if $(WERROR),ON,OFF)
	@cmake --build --preset cuda -j $(JOBS) --target $(CUDA_TARGETS)
	@ctest --preset cuda -L cuda --verbose

bundle: deps-build ## Pack a relocatable archive with CUDA for all its GPUs: build/tutti-cuda.tar.gz
	@tools/cuda_headers
	@cmake --preset bundle --log-level=WARNING
	@cmake --build --preset bundle -j $(JOBS) --target tutti engine_test train_test comm_test parity_dump
	@tools/bundle build/bundle build/tutti-cuda.tar.gz

bundle-cpu: build ## Pack a relocatable archive of the CPU program: build/tutti.tar.gz
	@tools/bundle $(RELEASE) build/tutti.tar.gz

# The chip that the kit is for, as nvcc names it, without `sm_`: 90a is an H100 or H200.
ARCH ?= 90a
KIT = build/tutti-gpu-kit-sm_$(ARCH).tar.xz

gpu-kit: deps-build ## Pack programs, tests and scripts that check a GPU elsewhere: ARCH=90a, at most 56 MiB
	@tools/cuda_headers
	@cmake --preset kit --log-level=WARNING -DTUTTI_WERROR=$(if $(WERROR),ON,OFF) \
		-DCMAKE_CUDA_ARCHITECTURES=$(ARCH)-real
	@cmake --build --preset kit -j $(JOBS) --target tutti engine_test train_test parity_dump
	@tools/bundle build/kit $(KIT) --kit $(if $(SHAKESPEARE),--text $(SHAKESPEARE))

deb: build ## Pack a Debian package for this release of Debian: build/release/packages/*.deb
	@tools/install_packages package
	@cd $(RELEASE) && cpack -G DEB

wheel: build ## Pack a Python wheel with all libraries: build/release/packages/*.whl
	@tools/wheel $(RELEASE) $(RELEASE)/packages

gpu-check: ## On a machine with a GPU: the proof in 10 minutes; GPU_CHECK='--profile speed' the speed table
	@python3 benchmarks/gpu/gpu_check.py $(GPU_CHECK)

format: ## Format all C++ sources
	@tools/format

format-check: ## Fail when a C++ source is not formatted
	@tools/format --check

layers: ## Fail when a folder includes what its rank forbids, or a source is not built
	@tools/check_layers

words: ## Fail on words that docs/glossary.md has retired
	@tools/check_words

links: ## Fail on links between pages that lead nowhere
	@tools/check_links

tidy: deps ## Run clang-tidy on the files that differ from the main branch
	@cmake --preset tidy --log-level=WARNING
	@tools/tidy -j $(JOBS)

check: layers words links format-check tidy ## Layers, words, links, formatting and clang-tidy on changed files

hooks: ## Let git check layers, words, links and formatting before each commit
	@git config core.hooksPath .githooks && echo "git hooks: .githooks"

install: build ## Install to PREFIX (default /usr/local)
	@cmake --install $(RELEASE) --prefix $(or $(PREFIX),/usr/local)

clean: ## Remove what was built; runs/ stays
	@rm -rf build demo
