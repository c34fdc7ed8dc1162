# On a fresh machine `make demo` and `make test` do all the set-up themselves.

export PYTHON3 ?= python3
WORKERS ?= 2

python := .venv/bin/python
# The folder counts too: an environment that was moved still points at the old one.
stamp := .stamp-$(shell { pwd; cat pyproject.toml constraints.txt; } | cksum | cut -d' ' -f1)
# The peers' environment holds all that .venv holds, and the peers.
bench_python = $(if $(wildcard .venv-peers/$(stamp)),.venv-peers/bin/python,$(python))

help: ## say what can be made
	@grep -E '^[a-z-]+:.*## ' Makefile | sed 's/:.*## /\t/' | expand -t 16

setup: .venv/$(stamp) ## make .venv; a second time does nothing

demo: setup ## capture an AlexNet, print it, write its table
	@$(python) examples/demo.py

test: setup ## the fast tests
	@$(python) -m pytest -q -n $(WORKERS)

check: setup ## formatting, lint, types, import map
	@$(python) -m ruff format --check .
	@$(python) -m ruff check .
	@$(python) -m mypy
	@$(python) -m pytest -q tests/test_house.py -k import_map

bench: bench-capture ## every benchmark

bench-capture: setup ## what capture costs; with the peers beside it after `make setup-peers`
	@$(bench_python) benchmarks/capture.py

setup-peers: .venv-peers/$(stamp) ## make .venv-peers, where the peers of the benchmarks live

zoo: setup ## capture and validate every model we can get, write docs/zoo.md
	@$(python) benchmarks/zoo.py

clean: ## remove what tools and the demo left; the environments stay
	rm -rf build dist demo-output .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +

.venv/$(stamp):
	@.ci/environment .venv
	@rm -f .venv/.stamp-* && touch $@

.venv-peers/$(stamp):
	@.ci/environment .venv-peers torchlens==2.36.1 nnsight
	@rm -f .venv-peers/.stamp-* && touch $@

.PHONY: help setup demo test check bench bench-capture setup-peers zoo clean
