# The two main targets are quickstart and test. `fettle --help` lists the commands of the program.
BUILD ?= build
override BUILD := $(patsubst ~/%,$(HOME)/%,$(BUILD))
JOBS ?= $(shell awk -v cores=$$(nproc) '/^MemTotal/ { fit = int($$2 / 2000000); print fit < 1 ? 1 : fit < cores ? fit : cores }' /proc/meminfo)

.PHONY: quickstart build test test-all test-device bench bench-all parity fuzz faults launchers browser sanitize setup plugins clean format install \
	dist test-dist

quickstart: build
	@FETTLE="$(BUILD)/fettle" examples/debian-helper/run.sh

setup:
	@scripts/setup.sh

# Fetches the GPU vendors' plugins, which `fettle plan` needs to plan for their machines and which training on GPUs
# needs. If NVIDIA's driver is installed, or with GPU=nvidia, also fetches the libraries that its GPUs need (a download
# of 1.6 GB). GPU=none leaves these libraries out.
plugins: setup
	@GPU=$(GPU) scripts/plugins.sh

$(BUILD)/build.ninja: | setup
	@cmake -S . -B "$(BUILD)" -G Ninja -DCMAKE_CXX_COMPILER_LAUNCHER=ccache >/dev/null

build: setup $(BUILD)/build.ninja
	@cmake --build "$(BUILD)" --parallel $(JOBS) --target fettle

# Installs the program, its libraries, completion for shells and the man page (docs/install.md).
PREFIX ?= /usr/local
# Most shells leave the ~ of PREFIX=~/x as it is.
override PREFIX := $(patsubst ~/%,$(HOME)/%,$(PREFIX))
install: build
	@cmake --install "$(BUILD)" --prefix "$(PREFIX)" --strip

# Makes a wheel and a .deb in build/dist. `make test-dist` tests them in fresh systems (needs root; docs/install.md).
dist: build
	@packaging/dist.sh "$(BUILD)"
test-dist:
	@packaging/test.sh "$(BUILD)/dist"

# `make test` leaves out the slow tests, most of which repeat a test for another family (docs/tests.md); `make test-all`
# runs all. FETTLE_TEST_WITHOUT_GPU_PLUGINS=1 skips the vendors' compilers and their download of 390 MB.
test test-all: setup $(BUILD)/build.ninja
	@[ -n "$$FETTLE_TEST_WITHOUT_GPU_PLUGINS" ] || scripts/plugins.sh cuda rocm
	@scripts/check_layout
	@scripts/check_format
	@scripts/check_docs
	@cmake --build "$(BUILD)" --parallel $(JOBS)
	@FETTLE_TEST_PROGRAMS="$(abspath $(BUILD))/test_programs" ctest --test-dir "$(BUILD)" --output-on-failure --parallel $(JOBS) $(if $(filter test,$@),-E ^slow/); code=$$?; \
		scripts/list_skipped "$(BUILD)"; exit $$code

# PLUGIN is the plugin of a real device: cuda, rocm or a file (tests/on_device.sh).
test-device: setup $(BUILD)/build.ninja
	@cmake --build "$(BUILD)" --parallel $(JOBS)
	@tests/on_device.sh "$(PLUGIN)" "$(BUILD)"

# Measures each workload once, then a second time. Ends after 28 minutes.
# bench-all measures the full table.
bench: build
	@FETTLE="$(BUILD)/fettle" benchmarks/run.sh --minutes 28
bench-all: build
	@FETTLE="$(BUILD)/fettle" benchmarks/run.sh --all
	@benchmarks/tokenizer.sh "$(BUILD)"

# PARITY chooses parts, such as `short` or `hub` (tests/reference/parity.sh).
parity: build
	@tests/reference/parity.sh $(PARITY)

# SECONDS_EACH is the fuzzing time of each target.
SECONDS_EACH ?= 600
fuzz:
	@FETTLE_FUZZ=1 scripts/setup.sh
	@tests/fuzz/run.sh $(SECONDS_EACH)

# SANITIZE=data leaves out checkpoints and their writer.
sanitize: setup
	@JOBS=$(JOBS) tests/sanitize.sh $(SANITIZE)

# Breaks runs in many ways (docs/reliability.md). FAULTS has further words for the sweep, such as
# "kills --count 100 --seed 7".
faults: setup $(BUILD)/build.ninja
	@cmake --build "$(BUILD)" --parallel $(JOBS) --target fettle fettle_faults
	@tests/faults/sweep.py --build "$(BUILD)" $(FAULTS)

# Trains under real launchers on hosts that are namespaces, and breaks the runs (root; docs/tests.md). LAUNCHERS has
# further words for the sweep, such as "--launchers srun mpirun --seconds 600".
launchers: setup $(BUILD)/build.ninja
	@cmake --build "$(BUILD)" --parallel $(JOBS) --target fettle several_cpu_plugin
	@tests/launchers/run.sh --build "$(BUILD)" --plugins cpu $(LAUNCHERS)

# Uses the pages of `fettle board`, `fettle serve` and report.html in a headless Chromium (docs/tests.md). Fetches
# Debian's Chromium into the cache (a download of about 100 MB) unless CHROMIUM names one or one is installed.
browser: build
	@tests/browser/run.sh "$(BUILD)"

format:
	@scripts/check_format --fix

clean:
	rm -rf "$(BUILD)"
