.PHONY: check test fix bench lock

check:  ## formatting, lint, types, layers, and the tests that need no model
	uv run ruff format --check .
	uv run ruff check .
	uv run mypy
	uv run lint-imports
	uv run pytest -m "not model"

test:  ## every test
	uv run pytest

fix:  ## what can be mended by itself
	uv run ruff format .
	uv run ruff check --fix .

bench:  ## against llama-bench and llama-server of the same source (builds them once, about ten minutes)
	uv run python bench/engine.py
	uv run python bench/server.py

lock:  ## the exact versions that were tested, without package hosts
	uv export --no-hashes --no-emit-project --no-annotate --no-header --all-groups > requirements.lock
