# The two commands: `make quickstart` and `make test`. Everything else is `fettle --help`.
BUILD ?= build
JOBS ?= 2

.PHONY: quickstart build test bench parity setup clean

quickstart: build
	examples/debian-helper/run.sh

setup:
	@scripts/setup.sh

$(BUILD)/build.ninja: CMakeLists.txt | setup
	@cmake -S . -B $(BUILD) -G Ninja -DCMAKE_CXX_COMPILER_LAUNCHER=ccache >/dev/null

build: setup $(BUILD)/build.ninja
	@cmake --build $(BUILD) --parallel $(JOBS) --target fettle

test: setup $(BUILD)/build.ninja
	@cmake --build $(BUILD) --parallel $(JOBS)
	@scripts/check_layout
	@ctest --test-dir $(BUILD) --output-on-failure

bench: build
	@benchmarks/run.sh

parity: build
	@tests/reference/parity.sh

clean:
	rm -rf $(BUILD)
