# On a fresh machine `make demo` and `make test` do all the set-up themselves.

export PYTHON3 ?= python3
# More than CI's cores: tests of other processes wait for them most of their time. Of these, so many drive a browser.
WORKERS ?= 4
BROWSERS ?= 3

python := .venv/bin/python
# The folder counts too: an environment that was moved still points at the old one.
stamp := .stamp-$(shell { pwd; cat pyproject.toml originals/pyproject.toml constraints.txt .ci/environment .ci/torchvision_import.py; } | cksum | cut -d' ' -f1)
docs_stamp := .stamp-$(shell { pwd; cat docs/_site/requirements.txt; } | cksum | cut -d' ' -f1)
# The peers' environment holds all that .venv holds, and the peers.
bench_python = $(if $(wildcard .venv-peers/$(stamp)),.venv-peers/bin/python,$(python))
# Node and npm, wherever .ci/node.py finds them; asked when a recipe needs them.
with_node = node=$$($(PYTHON3) .ci/node.py) && PATH="$${node%/*}:$$PATH"
node_modules := web/node_modules/.package-lock.json
page := src/torcheer/studio/page/studio.js
page_sources := $(shell find web/src -type f) web/build.mjs web/bundle.mjs

help: ## say what can be made
	@grep -E '^[a-z-]+:.*## ' Makefile | sed 's/:.*## /\t/' | expand -t 16

setup: .venv/$(stamp) $(page) ## make .venv and the studio's page; a second time does nothing

demo: setup ## train a small conv net on handwritten digits, with the studio, a watch, captures and a video
	@$(python) examples/demo.py demo-output

# Where this is set, every process compiles torcheer anew, and pytest every test.
unexport PYTHONDONTWRITEBYTECODE

# Sets are gone through in the same order every time; `make fuzz` lets them be. Workers side by side share no tensors' work.
test test-python test-house test-browser test-slow test-faults test-dist test-integrations test-originals test-seeds: export PYTHONHASHSEED = 0
test test-python test-house test-browser test-dist test-integrations test-originals test-seeds: export OMP_NUM_THREADS = 1

# The originals' programs are among the fast tests. What runs side by side: tests/workers.py.
fast := not slow and not house and not faults and not dist and not integrations and not seeds
in_workers = -m pytest -q -o console_output_style=classic --workers $(WORKERS) --browsers $(BROWSERS) $(PYTEST_OPTIONS)

test: test-page test-python ## the fast tests

test-page: setup $(node_modules) ## the page's own tests
	@$(with_node) node web/test.mjs

test-python: setup ## the fast tests, those with a browser too, without the page's own
	@.ci/browser >/dev/null || echo "tests that need a browser are left out"
	@$(python) $(in_workers) -m "$(fast)"

test-browser: setup ## of the fast tests, those that need a browser
	@.ci/browser >/dev/null
	@$(python) $(in_workers) -m "browser and $(fast)"

test-house: setup ## tests of the tests, the documents' claims, the site, the tour, the benchmarks' tables
	@$(python) $(in_workers) -m "house and not slow"

test-slow: setup ## the tests that take minutes
	@$(python) -m pytest -q -m slow

test-faults: setup test-kills ## kills, full disks and damage by the hundred
	@$(python) -m pytest -q -m faults

# A kill counts where the process itself wrote down that it was at the place; ONLY=trainer,extract kills some programs.
KILLS ?= 200

test-kills: setup ## 200 kills at places that prove themselves, each resumed and compared: a table
	@$(python) tests/kill_matrix.py --kills $(KILLS) --only "$(ONLY)"

# An environment of its own: Ray, an S3 server and FUSE are large, and nothing else needs them. Without Debian's fuse3,
# slurm-wlm, munge, and user-mode-linux, kmod, nfs-kernel-server, the tests of FUSE, Slurm and NFS are skipped.
test-dist: setup .venv-ray/$(stamp) ## two and four processes that train or extract together, killed ranks and nodes, Ray, S3, network storage
	@.venv-ray/bin/python -m pytest -q -m dist

# A gigabyte and some minutes for each; one environment at a time, removed again. VERSIONS="2.15@3.11 2.9@3.11" runs some.
test-versions: setup ## the wheel beside every torch from 2.9 on, and on every Python: the table of docs/versions.md
	@$(python) benchmarks/versions.py $(VERSIONS)

# An environment of its own: mlflow asks for another pyarrow than we test with.
test-integrations: setup .venv-integrations/$(stamp) ## others' loops and trackers, with the real packages: Lightning, transformers, Accelerate, W&B, TensorBoard, MLflow, captum
	@.venv-integrations/bin/python -m pytest -q -m integrations

test-originals: setup ## programs written for the originals, with only their import lines changed: the tests of torcheer-originals
	@cd originals && ../$(python) -m pytest -q

# An environment of its own, with a wheel of this tree and nothing else of ours; the stamp is of what the wheel needs.
test-seeds: setup .venv-seeds/$(stamp) ## every block of the five originals' documents, with torcheer as users install it
	@rm -rf build/seeds && $(python) -m hatchling build -t wheel -d build/seeds >/dev/null
	@.venv-seeds/bin/python -m pip -qq --disable-pip-version-check install --force-reinstall --no-deps build/seeds/*.whl
	@$(python) -m pytest -q -m seeds tests/test_seeds.py

# A round takes as long as the property tests of `make test`; SEED=… ROUNDS=1 draws again what a round drew.
ROUNDS ?= 5
# Of hostile files of all formats (tests/fuzz); the table says how many there were, and each finding how it is replayed.
SECS ?= 300
JOBS ?= 2

fuzz: setup fuzz-files ## hostile files of every format for SECS seconds, then the property tests ROUNDS times on fresh examples
	@for round in $$(seq $(ROUNDS)); do \
	    seed=$${SEED:-$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}; \
	    echo "round $$round of $(ROUNDS): make fuzz ROUNDS=1 SEED=$$seed"; \
	    $(python) $(in_workers) -m hypothesis --hypothesis-profile=fuzz --hypothesis-seed=$$seed || exit 1; \
	done

# An environment of its own: the reference readers of the formats.
fuzz-files: .venv-fuzz/$(stamp)
	@PYTHONPATH=tests .venv-fuzz/bin/python -m fuzz --secs $(SECS) --jobs $(JOBS) $(if $(SEED),--seed $(SEED)) $(FUZZ_OPTIONS)

check: check-python check-map check-page check-types ## formatting, lint, types, import map, the bundled pages

check-python: setup
	@$(python) -m ruff format --check .
	@$(python) -m ruff check .
	@mkdir -p build && $(python) .ci/readme_program.py >build/readme_program.py
	@$(python) -m mypy

# What a user's editor says of our types; mypy reads the same programs.
check-types: setup $(node_modules)
	@mkdir -p build && $(python) .ci/readme_program.py >build/readme_program.py
	@$(with_node) node web/node_modules/pyright/index.js --pythonpath $(python) tests/typed_user.py tests/typed_user_parts.py tests/typed_user_loops.py tests/typed_user_mistakes.py build/readme_program.py

check-map: setup
	@$(python) -m pytest -q tests/test_house.py -k import_map

check-page: setup $(node_modules)
	@$(with_node) node web/node_modules/prettier/bin/prettier.cjs --check --log-level warn --ignore-path web/.prettierignore web
	@$(with_node) node web/node_modules/typescript/bin/tsc --project web
	@$(with_node) && cd web && node node_modules/eslint/bin/eslint.js .
	@$(with_node) node web/build.mjs --check

# As git reads it of a clone: addresses and links of the metadata come from there (.ci/repository.py).
made_up_origin := GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=remote.origin.url GIT_CONFIG_VALUE_0=https://github.com/example/torcheer

# twine comes into an environment that is removed again.
check-metadata: setup ## what package indexes say of a wheel and an sdist: twine's own check
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && \
	    $(python) -m hatchling build -d "$$folder/dist" >/dev/null && $(PYTHON3) -m venv "$$folder/twine" && \
	    $(made_up_origin) $(python) -m hatchling build -d "$$folder/dist-of-a-clone" >/dev/null && \
	    "$$folder/twine/bin/python" -m pip -qq --disable-pip-version-check install twine && \
	    "$$folder/twine/bin/python" -m twine check --strict "$$folder"/dist*/*

web: .venv/$(stamp) $(node_modules) ## bundle the pages' TypeScript into src/torcheer
	@$(with_node) node web/build.mjs

bench: bench-capture bench-drawing bench-autograd bench-archive bench-training bench-watch bench-studio ## every benchmark

bench-capture: setup ## what capture costs; with the peers beside it after `make setup-peers`
	@$(bench_python) benchmarks/capture.py

bench-drawing: setup ## what a drawing costs; the peers also need Graphviz's `dot`
	@$(bench_python) benchmarks/drawing.py

bench-autograd: setup ## what a training step costs on our backward, beside torch's
	@$(python) benchmarks/autograd.py

bench-archive: setup ## what values on disk cost, beside plain files; what extraction costs, beside the bare loop
	@$(bench_python) benchmarks/archive.py
	@$(bench_python) benchmarks/extraction.py

bench-training: setup ## what a training step costs, beside a hand-written loop; with the peers after `make setup-peers`
	@$(bench_python) benchmarks/training.py

bench-ranks: setup ## what a step and a killed rank cost on two processes; with Lightning and Accelerate after `make setup-peers`
	@$(bench_python) benchmarks/training_ranks.py
	@$(bench_python) benchmarks/rank_kills.py

bench-watch: setup ## what watching costs the process that trains, beside W&B and TensorBoard after `make setup-peers`
	@$(bench_python) benchmarks/watch.py

bench-studio: setup ## what the studio costs the process that trains, and how long a person waits for its page
	@$(python) benchmarks/studio.py

# Some hours of CPU time, at the lowest priority, in a checkout of its own. BEFORE=folder takes the mutants of earlier
# results: the same faults against other tests. It goes on where it was interrupted.
mutants: setup ## 200 small faults in src, one at a time: which ones do the tests find?
	@test -d build/mutants || git clone --quiet . build/mutants
	@$(MAKE) --no-print-directory -C build/mutants setup
	@$(python) benchmarks/mutants.py build/mutants-results --tree build/mutants $(if $(BEFORE),--compare $(abspath $(BEFORE)))

pictures: setup ## take the pictures of docs/studio-networks.md anew; those of before stay, or come from BEFORE=folder
	@$(python) benchmarks/studio_pictures.py --write docs/pictures/networks $(if $(BEFORE),--before $(BEFORE))

# A quarter of an hour, as every frame is drawn in software; CHAPTERS="look alert" films some anew.
tour: setup ## film the tour of the README: docs/pictures/tour.webp, and tour.mp4, which can be paused
	@.ci/browser >/dev/null
	@$(python) docs/_tour/tour.py $(CHAPTERS)

# Not torcheer's environment: the pages are made of its sources. 12 MB under build/site, which opens without a server.
docs: export NO_MKDOCS_2_WARNING = 1
docs: .venv-docs/$(docs_stamp) ## build the documentation: build/site/index.html, searchable, without the network
	@.venv-docs/bin/mkdocs build --strict --quiet
	@echo "open build/site/index.html"

notebooks: setup ## execute the notebooks of docs/notebooks, with their outputs
	@$(python) docs/_site/run_notebooks.py

setup-peers: .venv-peers/$(stamp) ## make .venv-peers, where the peers of the benchmarks live

zoo: setup ## capture and validate every model we can get, write docs/zoo.md
	@$(python) benchmarks/zoo.py

zoo-autograd: setup ## one backward pass of every model, ours beside torch's
	@$(python) benchmarks/zoo_autograd.py

contexts: .venv-contexts/$(stamp) ## models of other libraries, captured and validated, in an environment of their own: the table of docs/contexts.md
	@.venv-contexts/bin/python benchmarks/contexts.py

clean: ## remove what tools and the demo left; the environments stay
	rm -rf build dist demo-output .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +

.venv/$(stamp):
	@.ci/environment .venv
	@rm -f .venv/.stamp-* && touch $@

.venv-docs/$(docs_stamp):
	@echo "documentation: making .venv-docs"
	@$(PYTHON3) -m venv --clear .venv-docs
	@.venv-docs/bin/python -m pip -qq --no-input --disable-pip-version-check install -r docs/_site/requirements.txt
	@touch $@

.venv-peers/$(stamp):
	@.ci/environment .venv-peers torchlens==2.36.1 nnsight torchview graphviz pytorch-ignite
	@rm -f .venv-peers/.stamp-* && touch $@

.venv-ray/$(stamp):
	@.ci/environment .venv-ray ray==2.60.0 s3fs 'moto[server]' mfusepy
	@rm -f .venv-ray/.stamp-* && touch $@

.venv-integrations/$(stamp):
	@.ci/environment .venv-integrations mlflow captum matplotlib jupyter-server-proxy
	@rm -f .venv-integrations/.stamp-* && touch $@

.venv-fuzz/$(stamp):
	@.ci/environment .venv-fuzz gguf==0.19.0 tensorboard onnx safetensors
	@rm -f .venv-fuzz/.stamp-* && touch $@

.venv-seeds/$(stamp): | setup
	@rm -rf build/seeds && $(python) -m hatchling build -t wheel -d build/seeds >/dev/null
	@WHEEL=$$(ls build/seeds/*.whl) .ci/environment .venv-seeds torchvision
	@rm -f .venv-seeds/.stamp-* && touch $@

.venv-contexts/$(stamp):
	@.ci/environment .venv-contexts diffusers==0.42.1 peft==0.21.2 torch_geometric==2.8.1 kornia==0.9.0 snntorch==1.0.0 \
	    torchdiffeq==0.2.5 mambapy==1.2.0 einops ultralytics==8.4.190
	@rm -f .venv-contexts/.stamp-* && touch $@

$(page): $(page_sources) $(node_modules)
	@echo "web: bundling the pages"
	@$(with_node) node web/build.mjs
	@touch $@

$(node_modules): web/package-lock.json | .venv/$(stamp)
	@echo "web: installing what bundles the pages"
	@$(with_node) npm --prefix web ci --no-audit --no-fund --loglevel=error
	@touch $@

.PHONY: help setup demo test test-page test-python test-house test-browser test-slow test-faults test-kills test-dist test-versions fuzz fuzz-files check check-python check-map check-page web bench bench-capture bench-drawing bench-autograd bench-archive bench-training bench-ranks bench-watch bench-studio pictures setup-peers zoo zoo-autograd contexts clean mutants test-integrations test-originals test-seeds check-metadata docs notebooks tour
