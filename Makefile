# The two commands: `make quickstart` and `make test`. Everything else is `fettle --help`.
BUILD ?= build
JOBS ?= $(shell awk -v cores=$$(nproc) '/^MemTotal/ { fit = int($$2 / 2000000); print fit < 1 ? 1 : fit < cores ? fit : cores }' /proc/meminfo)

.PHONY: quickstart build test bench parity fuzz setup plugins clean format

quickstart: build
	@FETTLE=$(BUILD)/fettle examples/debian-helper/run.sh

setup:
	@scripts/setup.sh

# The GPU vendors' plugins, for `fettle plan` of their machines and for running on them. Where NVIDIA's driver is, or
# with GPU=nvidia, also the libraries that its GPUs need (1.6 GB to fetch); GPU=none leaves them out.
plugins: setup
	@GPU=$(GPU) scripts/plugins.sh

$(BUILD)/build.ninja: | setup
	@cmake -S . -B $(BUILD) -G Ninja -DCMAKE_CXX_COMPILER_LAUNCHER=ccache >/dev/null

build: setup $(BUILD)/build.ninja
	@cmake --build $(BUILD) --parallel $(JOBS) --target fettle

# FETTLE_TEST_WITHOUT_GPU_PLUGINS=1 leaves the vendors' compilers out, and their 380 MB unfetched.
test: setup $(BUILD)/build.ninja
	@[ -n "$$FETTLE_TEST_WITHOUT_GPU_PLUGINS" ] || scripts/plugins.sh cuda rocm
	@scripts/check_layout
	@scripts/check_format
	@scripts/check_docs
	@cmake --build $(BUILD) --parallel $(JOBS)
	@ctest --test-dir $(BUILD) --output-on-failure --parallel $(JOBS)

bench: build
	@benchmarks/run.sh
	@benchmarks/tokenizer.sh $(BUILD)

parity: build
	@tests/reference/parity.sh

# SECONDS_EACH is how long each target is fuzzed.
SECONDS_EACH ?= 600
fuzz:
	@FETTLE_FUZZ=1 scripts/setup.sh
	@tests/fuzz/run.sh $(SECONDS_EACH)

format:
	@scripts/check_format --fix

clean:
	rm -rf $(BUILD)
