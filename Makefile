# make demo | make test | make build | make lint | make native-test | make clean
PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.built
SOURCES := pyproject.toml CMakeLists.txt chakra_schemas/et_def.proto $(shell find native -name '*.cpp' -o -name '*.hpp')

.PHONY: demo test build lint format native-test clean

build: $(STAMP)

$(VENV)/.tools: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "scikit-build-core>=1.0" "nanobind>=3.0" "grpcio-tools>=1.80" "cmake>=3.26" ninja
	touch $@

# --no-build-isolation keeps the CMake cache warm, so a second build compiles only what changed.
$(STAMP): $(VENV)/.tools $(SOURCES)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation -e ".[dev]"
	cp build/editable/_core.pyi genie/_core.pyi
	cp build/editable/et_def_pb2.pyi chakra_schemas/et_def_pb2.pyi
	touch $@

demo: build
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python examples/demo.py

test: build
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pytest -m "not slow" tests

lint: build
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $$(find native -name '*.cpp' -o -name '*.hpp')

format: build
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $$(find native -name '*.cpp' -o -name '*.hpp')

native-test: $(VENV)/.tools
	$(BIN)/cmake -S . -B build/sanitize -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DCMAKE_BUILD_TYPE=Debug -DGENIE_NATIVE_TESTS=ON -DGENIE_SANITIZE=address,undefined
	$(BIN)/cmake --build build/sanitize
	$(BIN)/ctest --test-dir build/sanitize --output-on-failure

clean:
	rm -rf build $(VENV) runs
