# make demo | make test | make test-all | make test-quick | make build | make lint | make format | make site | make native-test | make fuzz | make fuzz-inputs | make attack | make kills | make clean
VENV ?= .venv
BIN := $(VENV)/bin
BUILT := $(VENV)/.built
DEVELOP := $(VENV)/.develop
# The first of these that is Python 3.11 or newer.
PYTHON ?= $(shell for name in python3.11 python3 python; do \
  $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; done)
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install -qq
SOURCES := pyproject.toml CMakeLists.txt chakra_schemas/et_def.proto $(shell find native -name '*.cpp' -o -name '*.hpp' -o -name '*.in') genie/__init__.py
WITH_VENV := PATH="$(abspath $(BIN)):$$PATH"

.PHONY: demo test capture-test test-extended test-all test-quick build develop lint format native-build native-test thread-test fuzz fuzz-inputs attack kills same-bits picture site clean

build: $(BUILT)
develop: $(DEVELOP)

# The build tools, in the environment itself: --no-build-isolation below keeps CMake's cache, so that a second build
# compiles only what changed.
$(VENV)/.tools: pyproject.toml .ci/python-headers
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or newer found: install it (Debian: apt-get install python3 python3-venv) or give PYTHON=/path/to/python3.11" >&2; exit 3; }
	@command -v $${CXX:-c++} >/dev/null || command -v g++ >/dev/null || { echo "make: no C++ compiler found: install one (Debian: apt-get install g++)" >&2; exit 3; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || rm -rf $(VENV)
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "make: $(PYTHON) -m venv does not work: install it (Debian: apt-get install python3-venv)" >&2; exit 3; }
	@echo "setting up $(VENV): build tools"
	@$(PIP) $$($(BIN)/python .ci/requirements build-system.requires) "cmake>=3.26" "ninja>=1.11"
	@.ci/python-headers $(BIN)/python $(VENV)/headers
	@touch $@

$(BUILT): $(VENV)/.tools $(SOURCES)
	@echo "building genie and its native core"
	@$(WITH_VENV) $$(.ci/python-headers --environment $(VENV)/headers) $(PIP) --no-build-isolation -e ".[mpich]"
	@touch $@

$(DEVELOP): $(BUILT)
	@echo "setting up $(VENV): tools for tests and lint"
	@$(PIP) $$($(BIN)/python .ci/requirements project.optional-dependencies.dev)
	@touch $@

demo: build
	@$(WITH_VENV) $(BIN)/genie demo

# Two processes: one for tests that play in real time, one for tests that compute.
test: develop native-test
	$(WITH_VENV) $(BIN)/python -m pytest -n 2 -m "not extended and not pytorch"

# Guests, packaging, full matrices, all drawn cases, and the benchmarks' own tests.
test-extended: develop
	$(WITH_VENV) GENIE_DRAWS=all $(BIN)/python -m pytest -n 2 -m "extended or drawn"

test-all: test test-extended

test-quick: develop
	$(WITH_VENV) $(BIN)/python -m pytest -m "not slow and not extended and not pytorch"

# PyTorch, which nothing else needs, in an environment of its own.
TORCH_VENV ?= .venv-torch
capture-test: develop
	@test -x $(TORCH_VENV)/bin/python || python3 -m venv $(TORCH_VENV)
	@$(TORCH_VENV)/bin/pip install --quiet torch==2.13.0 numpy
	$(WITH_VENV) GENIE_TORCH_PYTHON=$(abspath $(TORCH_VENV))/bin/python $(BIN)/python -m pytest -m pytorch tests/capture

# The documents as pages for a browser and as man pages, with their internal links checked.
site: develop
	@$(BIN)/python docs/site/build.py

lint: develop
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	MYPYPATH=benchmarks $(BIN)/mypy benchmarks/*.py benchmarks/common/*.py benchmarks/native/*.py benchmarks/recorded/*.py
	MYPYPATH=tests/guests $(BIN)/mypy -p rxe
	MYPYPATH=docs/site $(BIN)/mypy docs/site/*.py
	$(BIN)/clang-format --dry-run --Werror $$(find native -name '*.cpp' -o -name '*.hpp')

format: develop
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $$(find native -name '*.cpp' -o -name '*.hpp')

SANITIZE ?= address,undefined
native-build: $(VENV)/.tools
	@$(BIN)/cmake -S . -B build/sanitize -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DCMAKE_BUILD_TYPE=Debug -DGENIE_NATIVE_TESTS=ON -DGENIE_SANITIZE=$(SANITIZE) >/dev/null
	@$(BIN)/cmake --build build/sanitize

native-test: native-build
	@$(BIN)/ctest --test-dir build/sanitize --output-on-failure -j 2

# Data races of the twin, the only native part with threads.
thread-test: $(VENV)/.tools
	@$(BIN)/cmake -S . -B build/threads -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DCMAKE_BUILD_TYPE=Debug -DGENIE_NATIVE_TESTS=ON -DGENIE_SANITIZE=thread >/dev/null
	@$(BIN)/cmake --build build/threads --target test_twin
	@$(BIN)/ctest --test-dir build/threads --output-on-failure -R '^test_twin$$'

# Hostile packets by name against runs; the table is build/attack.json too. Root, for raw sockets.
attack: build
	@mkdir -p build
	@$(BIN)/python benchmarks/attack.py --json build/attack.json

# Each fuzzer for FUZZ_SECONDS, as many at once as there are cores, from the corpus in native/fuzz/corpus; what broke
# stays in build/fuzz.
FUZZ_SECONDS ?= 20
FUZZ_SEED ?= 1
CLANGXX ?= clang++
fuzz: $(VENV)/.tools
	@command -v $(CLANGXX) >/dev/null || { echo "make: no $(CLANGXX) found: install it (Debian: apt-get install clang libclang-rt-14-dev) or give CLANGXX" >&2; exit 3; }
	@$(BIN)/cmake -S . -B build/fuzz -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_COMPILER=$(CLANGXX) -DGENIE_FUZZ=ON >/dev/null
	@$(BIN)/cmake --build build/fuzz --target fuzzers
	@$(BIN)/python native/fuzz/fuzz.py run --build build/fuzz/native/fuzz --seconds $(FUZZ_SECONDS) --seed $(FUZZ_SEED)

# Mutated files of every format through the commands that read them (tests/inputs); a finding says how to replay it.
INPUT_CASES ?= 100000
fuzz-inputs: build
	@$(WITH_VENV) $(BIN)/python tests/inputs/fuzz_inputs.py --cases $(INPUT_CASES) --seed $(FUZZ_SEED)

# Ranks, mpirun and the launcher are killed at drawn moments: is the right one named, and is nothing left?
KILLS ?= 200
KILLS_SEED ?= 1
kills: develop
	@$(BIN)/python benchmarks/kills.py --kills $(KILLS) --seed $(KILLS_SEED)

# Whether the twin, conversions and verdicts compute what they did: hashes of what 123 commands write.
same-bits: develop
	@$(WITH_VENV) $(BIN)/python benchmarks/recorded/same_bits.py benchmarks/recorded/same_bits.json

# The rooms and their arrows, from the imports.
picture: develop
	@$(BIN)/python tests/support/house.py docs/rooms.svg
	@$(BIN)/python tests/support/timeline_picture.py docs
	@$(BIN)/python tests/support/study_pictures.py docs

clean:
	rm -rf build $(VENV) runs
