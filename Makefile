# Two entry points: `make demo` sets everything up and runs the main job, `make test` sets everything up and passes the tests.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test check docs bench clean

demo: $(STAMP)
	@if $(BIN)/topoadvisor scan 2>$(VENV)/scan.err; then :; else \
		code=$$?; \
		if [ $$code -eq 1 ]; then exit 0; fi; \
		if [ $$code -ne 3 ]; then cat $(VENV)/scan.err >&2; exit $$code; fi; \
		echo "No GPU was found on this machine: showing a bundled one instead (topoadvisor scan fixture:8x4090)." >&2; \
		$(BIN)/topoadvisor scan fixture:8x4090 --fail-on never; \
	fi

test: check
	$(BIN)/python -m pytest -n auto --dist loadfile

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell topoadvisor rules README.md docs benchmarks fixtures
	$(BIN)/topoadvisor rules check
	$(BIN)/python fixtures/build.py --check
	$(BIN)/python docs/build.py --check

docs: $(STAMP)
	$(BIN)/python docs/build.py

bench: $(STAMP)
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/predict.py
	$(BIN)/python benchmarks/rules.py
	$(BIN)/python benchmarks/nccl_log.py
	$(BIN)/python benchmarks/long_text.py
	$(BIN)/python benchmarks/plans.py

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "topoadvisor needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]" -c constraints.txt
	@$(BIN)/python -m compileall -q topoadvisor
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
