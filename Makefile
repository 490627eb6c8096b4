# The front door. Everything here can also be done with cmake --preset and ctest --preset.
# `make JOBS=8` sets the parallelism, `make WERROR=1` makes compiler warnings errors.

JOBS ?= $(shell nproc)
WERROR ?=

RELEASE := build/release
TUTTI := $(RELEASE)/tutti

# The folders whose tests also run under sanitizers (their test program is <folder>_test).
# Address and undefined: whoever reads foreign bytes or computes addresses. Thread: whoever starts
# threads (the engine's are OpenMP's, which the sanitizer does not understand).
ASAN_FOLDERS := base spec data checkpoint engine model parallel train report mlperf comm control
TSAN_FOLDERS := telemetry data checkpoint comm parallel

# Build trees of one checkout share compiled objects.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1

existing = $(foreach f,$(1),$(if $(wildcard tutti/$(f)/CMakeLists.txt),$(f)))
missing = $(filter-out $(call existing,$(1)),$(1))
tests_of = $(addsuffix _test,$(call existing,$(1)))
space := $(subst ,, )
one_of = ^($(subst $(space),|,$(strip $(1))))$$

# $(call run_tests,<preset>,<extra ctest arguments>): results for tools/test_summary.
run_tests = rm -rf build/$(1)/test-results && ctest --preset $(1) -j $(JOBS) $(2) \
	--output-junit $(CURDIR)/build/$(1)/test-results/ctest.xml

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help deps deps-build build debug demo test test-release test-asan test-tsan bench \
	cuda bundle bundle-cpu gpu-check format format-check layers tidy check hooks install clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

deps: ## Install the Debian packages for building, testing and developing
	@tools/install_packages

deps-build:
	@tools/install_packages build

build: deps-build ## Build the program: build/release/tutti
	@cmake --preset release --log-level=WARNING -DTUTTI_WERROR=$(if $(WERROR),ON,OFF)
	@cmake --build --preset release -j $(JOBS)

debug: deps-build ## Build without optimisation: build/debug/tutti
	@cmake --preset debug --log-level=WARNING
	@cmake --build --preset debug -j $(JOBS)

demo: build ## Train a small model on the C and C++ headers of this machine, in two to six minutes
	@tools/demo

test: deps test-release test-asan test-tsan ## Run every test: release, sanitizers, Python readers
	@tools/test_summary

test-release: build
	@tools/python_env
	@$(call run_tests,release)

test-asan:
	@$(if $(call missing,$(ASAN_FOLDERS)),echo "asan: no such folder yet: $(call missing,$(ASAN_FOLDERS))")
	@cmake --preset asan --log-level=WARNING
	@cmake --build --preset asan -j $(JOBS) --target $(call tests_of,$(ASAN_FOLDERS)) cuda_on_host_test
	@$(call run_tests,asan,-R '$(call one_of,$(call tests_of,$(ASAN_FOLDERS)) cuda_on_host_test engine_test_cuda)')

test-tsan:
	@$(if $(call missing,$(TSAN_FOLDERS)),echo "tsan: no such folder yet: $(call missing,$(TSAN_FOLDERS))")
	$(if $(call existing,$(TSAN_FOLDERS)),@cmake --preset tsan --log-level=WARNING)
	$(if $(call existing,$(TSAN_FOLDERS)),@cmake --build --preset tsan -j $(JOBS) --target $(call tests_of,$(TSAN_FOLDERS)))
	$(if $(call existing,$(TSAN_FOLDERS)),@$(call run_tests,tsan,-R '$(call one_of,$(call tests_of,$(TSAN_FOLDERS)))'))

bench: build ## Measure kernels and a GPT-2 124M step against this machine's own peak
	@$(TUTTI) bench kernels
	@$(TUTTI) bench step --model gpt2-124m --precision bf16 --batch 4 --seq 64 --steps 5

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

gpu-check: ## On a machine with a GPU: run the proof and the speed table into one report
	@python3 benchmarks/gpu/gpu_check.py $(GPU_CHECK)

format: ## Format all C++ sources
	@tools/format

format-check: ## Fail when a C++ source is not formatted
	@tools/format --check

layers: ## Fail when a folder includes what its rank forbids, or a source is not built
	@tools/check_layers

tidy: build ## Run clang-tidy on the files that differ from the main branch
	@tools/tidy -j $(JOBS)

check: layers format-check tidy ## Layers, formatting and clang-tidy on changed files

hooks: ## Let git check layers and formatting before each commit
	@git config core.hooksPath .githooks && echo "git hooks: .githooks"

install: build ## Install to PREFIX (default /usr/local)
	@cmake --install $(RELEASE) --prefix $(or $(PREFIX),/usr/local)

clean: ## Remove what was built; runs/ stays
	@rm -rf build demo
